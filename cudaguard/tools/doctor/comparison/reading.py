"""Reads reports of doctor that were written elsewhere: JSON documents, and bundles with one."""

from __future__ import annotations

import json
import os

from cudaguard.files import LARGEST, read_bytes
from cudaguard.tools.common import SCHEMA
from cudaguard.tools.doctor import messages as wording
from cudaguard.tools.doctor.comparison.facts import facts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_BEFORE_HOST = "doctor-"  # as in doctor-%h.json
_FENCE = "```"


def read_report(path: str) -> dict[str, Any]:
    """Return a report with an inventory.

    Raises:
        ValueError: It cannot be read, or is none; the text says why and what to do.
    """
    try:
        text = read_bytes(path, LARGEST).decode("utf-8")
    except OSError as error:
        raise ValueError(wording.unreadable(path, error.strerror or str(error))) from None
    except ValueError:
        raise ValueError(wording.no_report(path)) from None
    try:
        document = json.loads(_last_block(text) if text.startswith("#") else text)
    except (ValueError, RecursionError):
        raise ValueError(wording.no_report(path)) from None
    if not isinstance(document, dict) or document.get("tool") != "doctor":
        raise ValueError(wording.no_report(path))
    if document.get("schema") != SCHEMA:
        raise ValueError(wording.other_release(path))
    if document.get("inventory", ()) is None:
        raise ValueError(wording.without_inventory(path))
    try:
        facts_of(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(wording.damaged(path, f"{type(error).__name__}: {error}")) from None
    return document


def _last_block(bundle: str) -> str:
    """Return the block of JSON that a bundle ends with; its fence is longer than any within."""
    lines = bundle.rstrip().split("\n")
    fence = lines.pop()
    if not fence.startswith(_FENCE) or f"{fence}json" not in lines:
        return ""
    last = max(number for number, line in enumerate(lines) if line == f"{fence}json")
    return "\n".join(lines[last + 1 :])


def labels(paths: Sequence[str]) -> list[str]:
    """Return a short name for each file, which no other has: that of the host, if it has one."""
    names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    if all(name.startswith(_BEFORE_HOST) for name in names):
        names = [name[len(_BEFORE_HOST) :] or name for name in names]
    if len(set(names)) < len(names):
        names = list(paths)
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    count = dict.fromkeys(seen, 0)
    found = []
    for name in names:  # the same file twice
        count[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({count[name]})")
    return found
