"""Which part of a text tells of the error that ended a program.

A log has much that is harmless: warnings of a library that was not found and is not needed, errors
that were handled. What ended the program is the last traceback, with the errors that led to it, or
what the C library, the C++ runtime or the loader says as the very last.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW = 1 << 20  # characters of a log that are read: its end, or what is around its last traceback
_TRACEBACK = "Traceback (most recent call last)"
_LINKS = ("The above exception was the direct cause", "During handling of the above exception")
# What dies without a traceback, or after it.
_FATAL = (
    "terminate called", "Fatal Python error", "LLVM ERROR", "OMP: Error", "libprotobuf FATAL",
    "symbol lookup error", "error while loading shared libraries", "free(): invalid",
    "double free or corruption", "corrupted size vs", "munmap_chunk(): invalid",
    "Segmentation fault", "Aborted", "Bus error", "Illegal instruction", "core dumped",
    "Check failed: ", "CHECK failed: ", "statusor.cc:",
)  # fmt: skip
# Raised for an error of another process, or of something below, which is told before it.
_PASSED_ON = (
    "ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "CalledProcessError",
    "exited unexpectedly", "Look at the errors above", "see above for",
    "Engine core initialization",
)  # fmt: skip
_QUIET = re.compile(r"(?:^|\s|\[)(?:\w*Warning\b|WARN(?:ING)?\b|INFO\b|DEBUG\b|W \w|W\d{4} |I \w)")
_LONGEST_LINE = 1000  # characters of a line on each side of a place
_MOST = 100  # tracebacks of a log that are looked at
_BEFORE = 60  # lines before an ending in which its cause may be told


class Part(NamedTuple):
    """A part of a text.

    Args:
        begin: Where it begins.
        end: Where it ends.
    """

    begin: int
    end: int

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and self.begin <= place < self.end


class Endings(NamedTuple):
    """How a text ends.

    Args:
        parts: What tells of the error that ended the program, the last one first; nothing for a
            text that is no log.
        before: What was said shortly before it.
    """

    parts: tuple[Part, ...]
    before: Part


def window_of(text: str) -> str:
    """Return the part of a text that is read: all of one that is not long.

    Of a long one it is the end; if something else was written for long after the last traceback,
    then what is around that.
    """
    if len(text) <= WINDOW:
        return text
    at = text.rfind(_TRACEBACK)
    if 0 <= at < len(text) - WINDOW:
        return text[max(0, at - WINDOW // 2) : at + WINDOW // 2]
    return text[-WINDOW:]


def endings_of(text: str) -> Endings:
    """Return what tells of the error that ended a program."""
    chains = list(_chains(text))
    found: list[Part] = []
    for chain in reversed(chains):
        found.append(chain)
        if not is_passed_on(text, chain):
            break
    fatal = _last_fatal(text, chains[-1].end if chains else 0)
    if fatal is not None:
        found.insert(0, fatal)
    if not found:
        return Endings((), Part(0, 0))
    begin = found[-1].begin
    return Endings(tuple(found), Part(_lines_back(text, begin, _BEFORE), begin))


def is_passed_on(text: str, part: Part) -> bool:
    """Return True if a part only says that something else has failed, which was told before."""
    return any(sign in text[part.begin : part.end] for sign in _PASSED_ON)


def is_quiet(text: str, place: int) -> bool:
    """Return True if the line at a place is a warning or less."""
    begin = text.rfind("\n", 0, place) + 1
    return _QUIET.search(text[begin : min(place, begin + 200)]) is not None


def line_at(text: str, place: int) -> str:
    """Return the line that a place is in; of a very long one what is around the place."""
    first, last = max(0, place - _LONGEST_LINE), min(len(text), place + _LONGEST_LINE)
    begin, end = text.rfind("\n", first, place), text.find("\n", place, last)
    return text[first if begin < 0 else begin + 1 : last if end < 0 else end]


def _chains(text: str) -> Iterator[Part]:
    """Yield the last tracebacks, those of errors that led to one another as one."""
    places: list[int] = []
    at = text.rfind(_TRACEBACK)
    while at >= 0 and len(places) < _MOST:
        places.append(at)
        at = text.rfind(_TRACEBACK, 0, at)
    begin = last = -1
    for at in reversed(places):
        if begin >= 0 and not any(link in text[last:at] for link in _LINKS):
            yield Part(begin, _end_of(text, last))
            begin = -1
        begin, last = (at if begin < 0 else begin), at
    if begin >= 0:
        yield Part(begin, _end_of(text, last))


def _end_of(text: str, traceback: int) -> int:
    """Return where the error ends that a traceback tells of: its message may have many lines.

    What is further in than the heading are frames. The message goes on to the end of the text, or
    to a line of somebody who writes in the form of a log.
    """
    place = text.find("\n", traceback) + 1
    indent = traceback - (text.rfind("\n", 0, traceback) + 1)
    while 0 < place < len(text):
        line = line_at(text, place)
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        place = _next_line(text, place)
    lines = 0
    while 0 < place < len(text):
        if lines and (_QUIET.match(line_at(text, place)) or lines > _BEFORE):
            return place
        lines += 1
        place = _next_line(text, place)
    return len(text)


def _next_line(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1


def _last_fatal(text: str, after: int) -> Part | None:
    """Return the last words of a process that died without a traceback, or behind it."""
    places = [place for place in (text.rfind(sign) for sign in _FATAL) if place >= after]
    if not places:
        return None
    begin = text.rfind("\n", 0, min(places)) + 1
    # Of several such lines the first is the cause, and what was said right before it may be.
    return Part(_lines_back(text, begin, 3) if not after else max(after, begin), len(text))


def _lines_back(text: str, place: int, lines: int) -> int:
    for _ in range(lines):
        if place <= 0:
            return 0
        place = text.rfind("\n", 0, place - 1) + 1
    return place
