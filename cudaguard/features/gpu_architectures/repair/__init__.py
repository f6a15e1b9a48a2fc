"""Compilers put in place that know the GPUs of this machine."""
