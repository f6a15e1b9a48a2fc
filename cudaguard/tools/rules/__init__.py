"""``cudaguard rules``: list, show, check and test rules."""
