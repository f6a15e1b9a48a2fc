"""Two files of one library in a process, or another one than was meant."""
