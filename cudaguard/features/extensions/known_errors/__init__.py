"""What the loader says of libraries and symbols, and what it means."""
