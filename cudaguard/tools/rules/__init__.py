"""``cudaguard rules``: list, show, check and test rules; what they do about public incidents."""
