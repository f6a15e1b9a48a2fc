"""A trace in words: a line per import, load and event, indented by what happened inside what."""

from __future__ import annotations

from cudaguard.tools.run.story import add_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cudaguard.tools.layout import Page

    Row = Mapping[str, Any]

_DEEPEST = 40  # levels of indentation
_LONGEST = 200  # characters of what was run
_MOST = 8  # names of modules on a line
_STYLES = {"cuda": "green", "finding": "yellow", "error": "red", "died": "red", "repair": "cyan"}
_SIGNS = {"cuda": "●", "finding": "▲", "repair": "✓", "error": "✗"}
_WITHOUT_NAME = {"start": "at start", "unseen": "past the importer"}
_UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def size(number: int) -> str:
    """Return a number of bytes in a unit that suits it."""
    for factor, unit in _UNITS:
        if number >= factor:
            value = number / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{number} B"


def count(number: int, what: str) -> str:
    """Return ``1 library``, ``2 libraries``."""
    if number == 1:
        return f"1 {what}"
    return f"{number} {what[:-1] + 'ies' if what.endswith('y') else what + 's'}"


def title(document: Mapping[str, Any]) -> str:
    """Return what the trace is of."""
    return f"Native libraries of: {command_line(document['program'])}"


def command_line(program: Sequence[str]) -> str:
    """Return what was run in one line, cut where it is long."""
    text = " ".join(" ".join(program).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def headline(document: Mapping[str, Any]) -> str:
    """Return in one sentence what was mapped, and who initialized CUDA."""
    told = document["summary"]
    mapped = f"{count(told['libraries'], 'library')} ({size(told['bytes'])})"
    parts = [f"{mapped} in {document['seconds']:.2f} s", initializer(told["initializer"])]
    if told["findings"]:
        parts.append(count(told["findings"], "finding"))
    return "; ".join(parts)


def initializer(actor: str | None) -> str:
    """Return who has initialized CUDA, as a clause."""
    if actor is None:
        return "nothing initialized CUDA"
    return f"CUDA was initialized by {actor or 'the program, between two imports'}"


def end(document: Mapping[str, Any]) -> str:
    """Return how the program ended, empty if it was well."""
    ended: Mapping[str, Any] = document["ended"]
    where = document["summary"]["died_in"]
    inside = f" in {base(where)}" if where else ""
    if ended["kind"] == "signal":
        return f"died of {ended['signal']}{inside}"
    if ended["kind"] == "timeout":
        return f"ended as its time was up{inside}"
    return f"exit status {ended['status']}" if ended["status"] else ""


def base(name: str) -> str:
    """Return the last part of a path, or the name as it is."""
    return name.rpartition("/")[2] or name


def place(where: str) -> str:
    """Return ``train.py:3`` or ``torch/__init__.py:3`` for a place in the code."""
    folder, _, name = where.rpartition("/")
    return f"{base(folder)}/{name}" if name.startswith("__init__.") else name


def label(row: Row) -> str:
    """Return what a row is about."""
    kind, names = row["kind"], row["names"]
    if kind == "import":
        return f"import {row['name']}"
    if len(names) > 1:
        whose = "Python itself" if row["owner"] == "Python" else row["owner"]
        what = "dlopen of {} libraries" if kind == "library" else "{} extension modules"
        return f"{what.format(len(names))} of {whose}"
    if kind == "library":
        return f"dlopen {base(row['name'])}"
    return _WITHOUT_NAME.get(kind) or str(row["name"])


def state(row: Row) -> str:
    """Return what became of an import or a load that did not end well; else nothing."""
    return {"failed": "failed", "unfinished": "never ended"}.get(row["state"], "")


def write(document: Mapping[str, Any], page: Page) -> None:
    """Write the trace in words.

    Args:
        document: The trace, its processes with ``rows`` (see `document.rows_of`).
        page: Where to.
    """
    page.add(title(document), style="bold")
    for process in document["processes"]:
        if len(document["processes"]) > 1:
            page.blank()
            page.add(process_title(process), style="bold")
        page.block("  at/s  took/s", style="dim")
        for row in process["rows"]:
            text, style = _line(row, page)
            depth = min(row["depth"], page.width // 6 if page.width else _DEEPEST)
            took = " " * 6 if row["seconds"] is None else f"{row['seconds']:6.3f}"
            lead = f"{row['at']:6.3f}  {took}  {'  ' * depth}"
            page.add(text, lead=lead, style=style, hanging=len(lead) + 2)
    if page.is_cut:
        page.add("--verbose lists the libraries that are only counted here", style="dim")
    page.add(headline(document), style="bold")
    if end(document):
        page.add(f"{_SIGNS['error']} {end(document)}", style=_STYLES["died"])
        for frame in document["ended"]["stack"]:
            add_frame(page, frame, 4)
    page.labeled("run", document["command"], 0) if document["command"] else None


def process_title(process: Mapping[str, Any]) -> str:
    """Return which process it is."""
    if process["is_program"]:
        return f"process {process['pid']}: the program"
    by = f", started by {process['parent']}" if process["parent"] else ""
    return f"process {process['pid']}{by}: {command_line(process['program']) or 'a fork'}"


def _line(row: Row, page: Page) -> tuple[str, str]:
    kind = row["kind"]
    if kind in _SIGNS:
        told = f" ({place(row['where'])})" if row["where"] else ""
        prefix = f"{row['id']} " if kind == "finding" else ""
        return f"{_SIGNS[kind]} {prefix}{row['name']}{told}", _STYLES[kind]
    parts = [label(row)]
    modules = row["names"] if len(row["names"]) > 1 else []
    if modules:
        parts.append(f"({page.listed([base(name) for name in modules], _MOST, '')})")
    elif row["where"]:
        parts.append(f"({place(row['where'])})")
    if row["brought"]:
        parts.append(f"+ {page.listed(row['brought'], option='')}")
    if row["is_known"]:
        parts.append("(there already)")
    if row["is_guards"]:
        parts.append("(for cudaguard itself)")
    if state(row):
        parts.append(f"← {state(row)}")
    return " ".join(parts), _STYLES["died"] if state(row) else "" if row["mapped"] else "dim"
