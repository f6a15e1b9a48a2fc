"""Looks at who owns a name in the global symbol scope."""
