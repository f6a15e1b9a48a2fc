"""Contexts created ahead, defaults of variables, modules put in place of others."""
