"""What is said of GPUs that compilers do not know."""
