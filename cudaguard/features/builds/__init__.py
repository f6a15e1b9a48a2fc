"""Builds with ``torch.utils.cpp_extension``: stale locks, tools that are missing or do not fit."""
