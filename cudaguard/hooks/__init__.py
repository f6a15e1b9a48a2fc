"""Hooks, by which Python calls the guard: finder, loaders, native loads; and their barrier."""
