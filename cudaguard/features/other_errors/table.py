"""What this feature has for the core."""

from __future__ import annotations

IDS: dict[str, tuple[str, str]] = {}
KNOWN_ERRORS = "known_errors:EXPLAINER"
