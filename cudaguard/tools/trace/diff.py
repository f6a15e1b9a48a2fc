"""What differs between two traces: "works here, crashes there". Pure: documents in, data out."""

from __future__ import annotations

import re
from bisect import bisect_left

from cudaguard.tools.trace.timeline import LOADS, owner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    Document = Mapping[str, Any]
    Library = dict[str, Any]
    Libraries = dict[tuple[str, int], Library]

_SITE = "-packages/"
_MARK = re.compile(r"-[0-9a-f]{8}(?=[-.])")  # put into names by auditwheel
_PYTHON = re.compile(r"^(python|libpython)\d.*")
_SAID = ("program", "python", "platform", "seconds", "ended", "summary")


def difference(a: Document, b: Document) -> dict[str, Any]:
    """Return what differs between the programs of two traces; what they start is left out.

    A library is the same in both if it has the same name; of several files of one name the first
    is compared with the first. What only the guard itself has loaded does not count, nor does what
    belongs to a Python of another version.
    """
    libraries_a, libraries_b = _libraries(a), _libraries(b)
    is_other_python = a["python"] != b["python"]
    shared = [key for key in libraries_a if key in libraries_b]
    pairs = [(libraries_a[key], libraries_b[key]) for key in shared]
    changed = [
        {"name": one["name"], "what": what, "a": one, "b": other}
        for one, other in pairs
        for what in [_changed(one, other)]
        if what and not (one["owner"] == other["owner"] == "Python" and is_other_python)
    ]
    found_a, found_b = _findings(a), _findings(b)
    return {
        "a": {key: a[key] for key in _SAID},
        "b": {key: b[key] for key in _SAID},
        "same": len(shared) - len(changed),
        "only_a": _only(libraries_a, libraries_b),
        "only_b": _only(libraries_b, libraries_a),
        "changed": changed,
        "moved": _moved(_order(a), _order(b)),
        "findings_a": [text for text in found_a if text not in found_b],
        "findings_b": [text for text in found_b if text not in found_a],
    }


def differs(found: Mapping[str, Any]) -> bool:
    """Return True if what was mapped, in what order, by whom, or the end of the program differs."""
    lists = ("only_a", "only_b", "changed", "moved", "findings_a", "findings_b")
    one, other = found["a"], found["b"]
    return (
        any(found[name] for name in lists)
        or one["ended"] != other["ended"]
        or one["summary"]["initializer"] != other["summary"]["initializer"]
    )


def _only(these: Libraries, others: Libraries) -> list[Library]:
    return [lib for key, lib in these.items() if key not in others and not lib["is_guards"]]


def _steps(document: Document) -> list[dict[str, Any]]:
    processes = document["processes"]
    return list(processes[0]["steps"]) if processes else []


def _libraries(document: Document) -> Libraries:
    """Return what was mapped by its name and which file of that name it is, oldest first."""
    found: dict[tuple[str, int], Library] = {}
    counts: dict[str, int] = {}
    for step in _steps(document):
        by = step["name"] or {"start": "at start"}.get(step["kind"], "")
        for library in step["mapped"]:
            name = _name(library)
            counts[name] = counts.get(name, 0) + 1
            told = {"at": step["at"], "by": by, "where": step["where"]}
            told["is_guards"] = step["is_guards"]
            owner = owner_of(library)
            found[name, counts[name]] = {**library, **told, "name": name, "owner": owner}
    return found


def _name(library: Mapping[str, Any]) -> str:
    """Return what a library is called wherever it is installed, and for whatever Python."""
    folder, _, file = library["file"].rpartition("/")
    if library["name"] != file or "/lib-dynload" in library["file"]:
        name = str(library["name"]).partition(".cpython-")[0]
        return _PYTHON.sub(r"\1", _MARK.sub("", name))
    inside = folder.partition(_SITE)[2]
    stem, tag, _ = file.partition(".cpython-")
    stem = f"{stem}.so" if tag else _PYTHON.sub(r"\1", _MARK.sub("", file))
    # An extension module has a name within its package only: there is many a _C.
    return f"{inside}/{stem}" if inside and (tag or ".so." not in file) else stem


def _changed(one: Library, other: Library) -> list[str]:
    what = [key for key in ("package", "version") if one[key] != other[key]]
    if _place(one) != _place(other):
        what.append("file")
    if not what and one["build"] != other["build"] and one["build"] and other["build"]:
        what.append("build")
    return what


def _place(library: Library) -> str:
    """Return where a file lies; for what was installed into an environment, within it."""
    path: str = library["file"]
    inside = path.partition(_SITE)[2]
    if "/lib-dynload/" in path or library["owner"] == "Python":
        return "Python"
    return _MARK.sub("", inside.partition(".cpython-")[0]) if inside else path


def _order(document: Document) -> list[str]:
    """Return what was loaded, in that order, without what belongs to Python itself."""
    names = (
        step["name"].rpartition("/")[2]
        for step in _steps(document)
        if step["kind"] in LOADS and not step["is_guards"] and "/lib-dynload/" not in step["file"]
    )
    return list(dict.fromkeys(names))


def _moved(a: Sequence[str], b: Sequence[str]) -> list[dict[str, str]]:
    """Return what was loaded in another place of the order: as few as tell it."""
    shared_a, shared_b = [name for name in a if name in b], [name for name in b if name in a]
    places = {name: index for index, name in enumerate(shared_b)}
    stay = _longest_rising([places[name] for name in shared_a])
    return [
        {"name": name, "a_after": _before(shared_a, name), "b_after": _before(shared_b, name)}
        for name in shared_a
        if places[name] not in stay
    ]


def _before(order: Sequence[str], name: str) -> str:
    place = order.index(name)
    return order[place - 1] if place else ""


def _longest_rising(numbers: Sequence[int]) -> set[int]:
    """Return the longest run of numbers, not necessarily neighbors, each above the last."""
    ends: list[int] = []  # the lowest end of a run of each length
    before: dict[int, int | None] = {}
    for number in numbers:
        place = bisect_left(ends, number)
        before[number] = ends[place - 1] if place else None
        ends[place : place + 1] = [number]
    found: set[int] = set()
    last = ends[-1] if ends else None
    while last is not None:
        found.add(last)
        last = before[last]
    return found


def _findings(document: Document) -> list[str]:
    steps = _steps(document)
    return [f"{step['id']} {step['name']}" for step in steps if step["kind"] == "finding"]
