"""The built-in knowledge as a whole, for commands; importing it makes every rule."""

from __future__ import annotations

from cudaguard import api  # noqa: F401  # hands the features to the core
from cudaguard.core.table import table

RULES = table.rules()
DETECTORS = {id: title for id, (title, _) in table.index.IDS.items()}
