"""Modules that have to come before others, and libraries that have to be there first."""
