"""The difference of two traces in words."""

from __future__ import annotations

from cudaguard.tools.trace.messages import base, command_line, count, end, initializer, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from cudaguard.tools.layout import Page

    Library = Mapping[str, Any]

_MOST = 40  # entries of a list


def write(found: Mapping[str, Any], files: tuple[str, str], page: Page) -> None:
    """Write the difference in words.

    Args:
        found: As `cudaguard.tools.trace.diff.difference` returns it.
        files: The names of the two traces.
        page: Where to.
    """
    for letter, file in zip("ab", files):
        said = found[letter]
        ended = end(said) or "ended well"
        page.add(
            f"{file}: {command_line(said['program'])}: {ended}",
            lead=f"{letter.upper()}: ",
            hanging=3,
        )
        page.add(f"Python {said['python']}, {initializer(said['summary']['initializer'])}", 3)
    for letter in "ba":
        _only(found[f"only_{letter}"], letter.upper(), page)
        _titled(f"found in {letter.upper()} only", found[f"findings_{letter}"], page)
    _titled("another file or version", _changes(found["changed"], page), page)
    _titled("another order", [_move(entry) for entry in found["moved"]], page)
    page.blank()
    page.add(f"{count(found['same'], 'library')} the same in both")


def _titled(title: str, lines: Sequence[str], page: Page) -> None:
    """Add lines below a title; those that begin with blanks are about the one above them."""
    if not lines:
        return
    page.blank()
    page.add(f"{title}:")
    shown, more = page.cut(lines, _MOST)
    for line in (*shown, more):
        text = line.lstrip(" ")
        page.add(text, 2 + len(line) - len(text))


def _only(libraries: Sequence[Library], letter: str, page: Page) -> None:
    pythons = [lib["name"] for lib in libraries if "/lib-dynload/" in lib["file"]]
    others = [lib for lib in libraries if "/lib-dynload/" not in lib["file"]]
    lines = [f"{_said(lib)}, by {_by(lib)}" for lib in others]
    if pythons:
        lines.append(f"of Python itself: {page.listed(pythons, 12)}")
    _titled(f"mapped in {letter} only ({len(libraries)})", lines, page)


def _said(library: Library) -> str:
    version = f" {library['version']}" if library["version"] else ""
    return f"{library['name']}{version} ({library['package'] or library['file']})"


def _by(library: Library) -> str:
    where = f" ({place(library['where'])})" if library["where"] else ""
    return f"{base(library['by']) or 'nobody that was seen'}{where} at {library['at']:.3f} s"


def _changes(changed: Sequence[Mapping[str, Any]], page: Page) -> list[str]:
    lines: list[str] = []
    releases: dict[tuple[str, str], list[str]] = {}
    for entry in changed:
        packages = entry["a"]["package"], entry["b"]["package"]
        if "package" in entry["what"] and all(packages):
            releases.setdefault(packages, []).append(base(entry["name"]))
        else:
            lines += _change(entry)
    told = [f"{a} in A, {b} in B: {page.listed(found)}" for (a, b), found in releases.items()]
    return told + lines


def _change(entry: Mapping[str, Any]) -> Iterator[str]:
    what = ", ".join(entry["what"])
    yield f"{entry['name']} (other {what})"
    for letter in "ab":
        library = entry[letter]
        parts = [library["package"], library["version"], library["file"]]
        build = f"build {library['build']}" if "build" in entry["what"] else ""
        yield f"  {letter.upper()}  {'  '.join(filter(None, [*parts, build]))}"


def _move(entry: Mapping[str, str]) -> str:
    told = [
        f"in {letter} after {entry[key]}" if entry[key] else f"in {letter} first of all"
        for letter, key in (("A", "a_after"), ("B", "b_after"))
    ]
    return f"{entry['name']}: {', '.join(told)}"
