"""What the guard costs, beside what others cost: ``python -m benchmarks`` (see README.md)."""
