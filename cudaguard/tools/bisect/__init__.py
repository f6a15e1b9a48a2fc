"""``cudaguard bisect``: which imports, in which order, make a program fail."""
