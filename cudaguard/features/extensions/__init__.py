"""Compiled extensions that would not load, or did not."""
