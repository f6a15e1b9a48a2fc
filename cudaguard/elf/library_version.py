"""Tells the release of a library by names of files, without loading it.

Source: how NVIDIA's wheels are laid out (``nvidia/<part>/lib`` beside their metadata), and how
libraries are installed elsewhere: ``libx.so.1`` is a link to ``libx.so.1.2.3``.
"""

from __future__ import annotations

from cudaguard.files import os, ours, read_start

_BEGINNING = 1 << 12  # bytes: the headers, and mostly the number of the build


def version_of(path: str, soname: str, wheel: str = "") -> tuple[int, ...]:
    """Return the version of a library as far as names tell, empty if they do not.

    Args:
        path: Its file.
        soname: The name by which it is asked for, whose numbers do not tell the release.
        wheel: The middle of the name of NVIDIA's package that may bring it.
    """
    name = os.path.basename(os.path.realpath(path))
    found = _numbers(name.partition(".so.")[2]) if name != soname else ()
    return found or (_version_of_wheel(path, wheel) if wheel else ())


def _version_of_wheel(path: str, wheel: str) -> tuple[int, ...]:
    folder = os.path.dirname(os.path.realpath(path))
    for _ in range(3):  # nvidia/<part>/lib
        folder, last = os.path.split(folder)
    if last != "nvidia":
        return ()
    try:
        names = os.listdir(folder)
    except ours(OSError):
        return ()
    found = set()
    for name in names:
        dist, _, rest = name.partition("-")
        version, is_metadata, _ = rest.partition(".dist-info")
        if is_metadata and (f"{dist}_".startswith(f"nvidia_{wheel}_")):
            found.add(_numbers(version))
    return found.pop() if len(found) == 1 else ()  # of two, nobody knows whose file it is


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split(".")
    return tuple(map(int, words)) if all(word.isdecimal() for word in words) else ()


def is_same_build(one: str, other: str) -> bool:
    """Return True if two files are copies of one another, as far as size and beginning tell."""
    try:
        return os.path.getsize(one) == os.path.getsize(other) and (
            _beginning(one) == _beginning(other)
        )
    except ours(OSError):
        return False


def _beginning(path: str) -> bytes:
    return read_start(path, _BEGINNING)
