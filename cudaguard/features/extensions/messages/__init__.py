"""What is said of extensions that would not load, or did not."""
