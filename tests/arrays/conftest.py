"""Hypothesis without time limits: these tests say nothing about speed."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("cudaguard", deadline=None)
settings.load_profile("cudaguard")
