"""CUDA initialization: by whom, which contexts exist, what forks and late variables break."""
