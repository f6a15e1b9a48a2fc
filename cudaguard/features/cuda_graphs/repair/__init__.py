"""Copies of what a later call would overwrite."""
