"""What we know: the built-in rules, and how further ones are read, checked and indexed."""
