"""Looks at the driver, at forks and at the environment."""
