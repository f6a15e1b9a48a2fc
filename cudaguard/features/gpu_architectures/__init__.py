"""GPUs that torch, its NVRTC or another library has no code for."""
