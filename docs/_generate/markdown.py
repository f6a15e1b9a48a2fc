"""Markdown of names, texts and tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


# What a reader copies: a command that ends in a package, a call, a name with an underscore.
_CODE = re.compile(
    r"((?:python -m )?(?:pip|conda) install(?: (?:-[\w-]+|'[^']*'|[A-Z]{3,}\b))*?"
    r"(?: (?:'[^']*'|[A-Z]{4,}\b))+"
    r"|(?:\b\w+ = )?[A-Za-z_][\w.]*(?:::\w+)*\([^()]*\)(?:\.\w+\([^()]*\))*"
    r"|[\w.=/$-]*_[\w.=/$-]*\w)"
)


def table_of(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table."""
    head = list(head)
    lines = [f"| {' | '.join(row)} |\n" for row in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|\n")
    return "".join(lines)


def code(text: str) -> str:
    """Return a text of one line as code, whatever it holds."""
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text[:1] in "` " or text[-1:] in "` " else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def plain(text: str) -> str:
    """Return a text of which nothing is taken for markup; commands, calls and names as code."""
    parts = _CODE.split(text)
    parts[::2] = [re.sub(r"([\\`*_<>\[\]|$~])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [code(part) for part in parts[1::2]]
    return "".join(parts)


def cell(text: str) -> str:
    """Return a text for a cell of a table, where a line would end it."""
    return text.replace("|", "\\|")
