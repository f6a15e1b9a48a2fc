"""What follows: pure functions from rules and facts to plans. No I/O, no ``sys.modules``."""
