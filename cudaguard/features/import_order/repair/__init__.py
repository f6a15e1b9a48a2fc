"""Prerequisites: modules and libraries."""
