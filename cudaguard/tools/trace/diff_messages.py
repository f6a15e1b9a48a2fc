"""The difference of two traces in words."""

from __future__ import annotations

from cudaguard.tools.trace.messages import base, count, end, initializer, names, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    Library = Mapping[str, Any]

_MOST = 40  # entries of a list


def as_text(found: Mapping[str, Any], files: tuple[str, str]) -> str:
    """Return the difference in words.

    Args:
        found: As `cudaguard.tools.trace.diff.difference` returns it.
        files: The names of the two traces.
    """
    lines = []
    for letter, file in zip("ab", files):
        said = found[letter]
        ended = end(said) or "ended well"
        lines.append(f"{letter.upper()}: {file}: {said['program']}: {ended}")
        lines.append(f"   Python {said['python']}, {initializer(said['summary']['initializer'])}")
    for letter in "ba":
        lines += _only(found[f"only_{letter}"], letter.upper())
        told = [f"  {text}" for text in found[f"findings_{letter}"]]
        lines += _titled(f"found in {letter.upper()} only", told)
    lines += _titled("another file or version", _changes(found["changed"]))
    lines += _titled("another order", [_move(entry) for entry in found["moved"]])
    lines += ["", f"{count(found['same'], 'library')} the same in both"]
    return "\n".join(lines)


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
    return ["", f"{title}:", *lines[:_MOST], *more]


def _only(libraries: Sequence[Library], letter: str) -> list[str]:
    pythons = [lib["name"] for lib in libraries if "/lib-dynload/" in lib["file"]]
    others = [lib for lib in libraries if "/lib-dynload/" not in lib["file"]]
    lines = [f"  {_said(lib)}, by {_by(lib)}" for lib in others]
    if pythons:
        lines.append(f"  of Python itself: {names(pythons, 12)}")
    return _titled(f"mapped in {letter} only ({len(libraries)})", lines)


def _said(library: Library) -> str:
    version = f" {library['version']}" if library["version"] else ""
    return f"{library['name']}{version} ({library['package'] or library['file']})"


def _by(library: Library) -> str:
    where = f" ({place(library['where'])})" if library["where"] else ""
    return f"{base(library['by']) or 'nobody that was seen'}{where} at {library['at']:.3f} s"


def _changes(changed: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    releases: dict[tuple[str, str], list[str]] = {}
    for entry in changed:
        packages = entry["a"]["package"], entry["b"]["package"]
        if "package" in entry["what"] and all(packages):
            releases.setdefault(packages, []).append(base(entry["name"]))
        else:
            lines += _change(entry)
    told = [f"  {a} in A, {b} in B: {names(found)}" for (a, b), found in releases.items()]
    return told + lines


def _change(entry: Mapping[str, Any]) -> Iterator[str]:
    what = ", ".join(entry["what"])
    yield f"  {entry['name']} (other {what})"
    for letter in "ab":
        library = entry[letter]
        parts = [library["package"], library["version"], library["file"]]
        build = f"build {library['build']}" if "build" in entry["what"] else ""
        yield f"    {letter.upper()}  {'  '.join(filter(None, [*parts, build]))}"


def _move(entry: Mapping[str, str]) -> str:
    told = [
        f"in {letter} after {entry[key]}" if entry[key] else f"in {letter} first of all"
        for letter, key in (("A", "a_after"), ("B", "b_after"))
    ]
    return f"  {entry['name']}: {', '.join(told)}"
