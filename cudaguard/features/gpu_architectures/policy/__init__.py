"""Which compiler can compile for which GPU."""
