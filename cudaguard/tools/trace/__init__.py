"""``cudaguard trace``: which import maps which library."""
