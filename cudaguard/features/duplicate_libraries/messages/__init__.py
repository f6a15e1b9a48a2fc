"""What is said of libraries that are there twice."""
