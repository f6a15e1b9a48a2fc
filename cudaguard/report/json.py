"""Findings and status as one JSON document."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Status

SCHEMA = 1


def status_document(status: Status, version: str) -> str:
    """Return the status as JSON: ``schema``, ``tool``, ``version``, then its fields."""
    head = {"schema": SCHEMA, "tool": "cudaguard", "version": version}
    return json.dumps({**head, **status.to_dict()}, indent=2)
