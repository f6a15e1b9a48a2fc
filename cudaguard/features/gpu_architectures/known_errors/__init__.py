"""What compilers, CUDA and torch say where a GPU or a driver does not fit."""
