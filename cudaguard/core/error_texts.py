"""Texts of errors and logs, as they are read: cleaned, by rank, and which part ended the program.

A log has much that is harmless: warnings of a library that was not found and is not needed,
errors that were handled. What ended the program is the last traceback, with the errors that led
to it, or what the C library, the C++ runtime or the loader says as the very last.
"""

from __future__ import annotations

import re

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
    "exited unexpectedly", "Look at the errors above", "see above for", "root cause above",
    "Engine core initialization", "Engine process failed", "EngineDeadError", "WorkerProc init",
    "Failed to infer device type", "ActorDiedError", "RayTaskError", "RaySystemError",
    "Rank 0 scheduler died", "Received SIGQUIT", "died unexpectedly", "BrokenProcessPool",
    "subprocess-exited-with-error", "SystemExit",
)  # fmt: skip
_QUIET = re.compile(
    r"(?:^|\s|\[)(?:\w*Warning\b|(?<!NCCL )WARN(?:ING)?\b|INFO\b|DEBUG\b|W \w|W\d{4} |I \w)"
)
_LONGEST_LINE = 1000  # characters of a line on each side of a place
_LONGEST_READ = 16_000  # of a longer line its beginning and its end are read
_MOST_TRACEBACKS = 100  # tracebacks of a log that are looked at
LINES_BEFORE = 60  # lines before an ending in which its cause may be told


# --- Cleaning -------------------------------------------------------------------------------------

_COLOR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u00b4", "''\"\"'")
# What launchers and loggers put before a line: who says it, in a group, and when.
_PREFIX = re.compile(
    r"(?:(?P<who>\[(?:default|rank|Rank )?\d{1,4}(?:[,/]\d{1,4})?\](?:<std(?:err|out)>)?:|"
    r"\([\w.<>:, -]{1,60}pid=\d{1,9}[^)\n]{0,60}\)|[\w.-]{1,60} +\|(?= )|\d{1,4}:(?= ))|"
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:?|"
    r"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?:?|"
    r"(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,80}:\d{1,6}\]|"
    r"[EF]\d{4} [\d:.]{8,20} {1,9}\d{1,9} [\w./-]{1,200}:\d{1,6}\]) ?"
)
_MOST_PREFIXES = 4


def streams_of(text: str) -> list[str]:
    """Return a text as its writers wrote it: without colors and prefixes, each rank's for itself.

    What has no prefix of a rank is the first one.
    """
    text = _window_of(text)
    if "\x1b" in text:
        text = _COLOR.sub("", text)
    text = text.translate(_QUOTES).replace("\r\n", "\n").replace("\r", "\n")
    streams: dict[str, list[str]] = {"": []}
    for line in text.split("\n"):
        who, place = "", 0
        for _ in range(_MOST_PREFIXES):
            prefix = _PREFIX.match(line, place)
            if prefix is None:
                break
            who, place = who + (prefix["who"] or ""), prefix.end()
        said = line[place:]
        if len(said) > _LONGEST_READ:
            half = _LONGEST_READ // 2
            said = f"{said[:half]} {said[-half:]}"
        streams.setdefault(who, []).append(said)
    return ["\n".join(lines) for lines in streams.values() if lines]


def _window_of(text: str) -> str:
    """Return the part of a text that is read: all of one that is not long.

    Of a long one it is the end; if something else was written for long after the last traceback,
    or after the last error where there is none, then what is around that.
    """
    if len(text) <= WINDOW:
        return text
    at = text.rfind(_TRACEBACK)
    at = at if at >= 0 else text.rfind("rror: ")
    if 0 <= at < len(text) - WINDOW:
        return text[max(0, at - WINDOW // 2) : at + WINDOW // 2]
    return text[-WINDOW:]


# --- The part that ended the program --------------------------------------------------------------


def endings_of(text: str) -> list[range]:
    """Return what tells of the error that ended the program, the last part first; [] for no log."""
    chains = list(_chains(text))
    found: list[range] = []
    for chain in reversed(chains):
        found.append(chain)
        if not is_passed_on(text, chain):
            break
    fatal = _last_fatal(text, chains[-1].stop if chains else 0)
    return found if fatal is None else [fatal, *found]


def is_passed_on(text: str, part: range) -> bool:
    """Return True if a part only says that something else has failed, which was told before.

    So does a traceback that was cut off before it names its error.
    """
    said = text[part.start : part.stop]
    last = said.rfind(_TRACEBACK)
    is_cut = last >= 0 and _message_of(said, last) >= len(said.rstrip())
    return is_cut or any(sign in said for sign in _PASSED_ON)


def is_quiet(text: str, place: int) -> bool:
    """Return True if the line at a place is a warning or less."""
    begin = text.rfind("\n", 0, place) + 1
    return _QUIET.search(text[begin : min(place, begin + 200)]) is not None


def line_at(text: str, place: int) -> str:
    """Return the line that a place is in; of a very long one what is around the place."""
    first, last = max(0, place - _LONGEST_LINE), min(len(text), place + _LONGEST_LINE)
    begin, end = text.rfind("\n", first, place), text.find("\n", place, last)
    return text[first if begin < 0 else begin + 1 : last if end < 0 else end]


def lines_back(text: str, place: int, lines: int) -> int:
    """Return where the line begins that is so many lines before a place."""
    for _ in range(lines):
        if place <= 0:
            return 0
        place = text.rfind("\n", 0, place - 1) + 1
    return place


def _chains(text: str) -> Iterator[range]:
    """Yield the last tracebacks, those of errors that led to one another as one."""
    places = [found.start() for found in re.finditer(re.escape(_TRACEBACK), text)]
    begin = last = -1
    for at in places[-_MOST_TRACEBACKS:]:
        if begin >= 0 and not any(link in text[last:at] for link in _LINKS):
            yield range(begin, _end_of(text, last))
            begin = -1
        begin, last = (at if begin < 0 else begin), at
    if begin >= 0:
        yield range(begin, _end_of(text, last))


def _message_of(text: str, traceback: int) -> int:
    """Return where the error's own words begin: what is further in than the heading are frames."""
    place = text.find("\n", traceback) + 1
    indent = traceback - (text.rfind("\n", 0, traceback) + 1)
    while 0 < place < len(text):
        line = line_at(text, place)
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return place
        place = _next_line(text, place)
    return len(text)


def _end_of(text: str, traceback: int) -> int:
    """Return where the error ends that a traceback tells of: its message may have many lines.

    It goes on to the end of the text, or to a line of somebody who writes in the form of a log.
    """
    place, lines = _message_of(text, traceback), 0
    while 0 < place < len(text):
        if lines and (_QUIET.match(line_at(text, place)) or lines > LINES_BEFORE):
            return place
        lines += 1
        place = _next_line(text, place)
    return len(text)


def _next_line(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1


def _last_fatal(text: str, after: int) -> range | None:
    """Return the last words of a process that died without a traceback, or behind it."""
    places = [place for place in (text.rfind(sign) for sign in _FATAL) if place >= after]
    if not places:
        return None
    begin = text.rfind("\n", 0, min(places)) + 1
    # Of several such lines the first is the cause, and what was said right before it may be.
    return range(lines_back(text, begin, 3) if not after else max(after, begin), len(text))
