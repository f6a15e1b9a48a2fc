"""GPUs that torch, its NVRTC, Triton, CuPy or numba-cuda do not know."""
