"""The checks of environment and guard."""
