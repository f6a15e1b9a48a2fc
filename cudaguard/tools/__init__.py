"""The command line and the front ends: what people use beside the functions."""
