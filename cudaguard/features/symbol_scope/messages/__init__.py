"""What is said of the symbol scope."""
