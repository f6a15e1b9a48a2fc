"""Outputs of compiled callables that use CUDA graphs, which the next call overwrites."""
