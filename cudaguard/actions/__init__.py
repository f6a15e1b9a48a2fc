"""What we do: one module per kind of repair."""
