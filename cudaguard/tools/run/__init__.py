"""``cudaguard run``: a program under the guard from its first line, with a report if it dies."""
