"""What is there: read-only facts, looked up on demand. Looking never changes the process."""
