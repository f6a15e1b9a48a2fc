"""``cudaguard doctor``: what would break here, and why."""
