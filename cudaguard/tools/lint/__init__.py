"""``cudaguard lint``: imports in an order that a rule forbids."""
