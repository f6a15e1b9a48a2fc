"""Two files of one library that are loaded."""
