"""``cudaguard check-extension``: whether compiled extensions would load, and run on a GPU."""
