"""Messages that do not say what is wrong, and what they mean: how one is found in a text.

Each feature has those of its kind in ``known_errors.py``. What explains a text is chosen by
evidence: what ended the program goes before what was said earlier, what is certain before what is
likely, and what fits a longer piece of a line before what fits a part of it.
"""

from __future__ import annotations

import re

from cudaguard.files import program_errors
from cudaguard.model import Finding, NamedTuple, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudaguard.model import Severity

# --- Which part of a text tells of the error that ended a program ---------------------------------
# A log has much that is harmless: warnings of a library that was not found and is not needed,
# errors that were handled. What ended the program is the last traceback, with the errors that led
# to it, or what the C library, the C++ runtime or the loader says as the very last.

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
_MOST_TRACEBACKS = 100  # tracebacks of a log that are looked at
_BEFORE = 60  # lines before an ending in which its cause may be told


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


def _endings(text: str) -> list[range]:
    """Return what tells of the error that ended the program, the last part first; [] for no log."""
    chains = list(_chains(text))
    found: list[range] = []
    for chain in reversed(chains):
        found.append(chain)
        if not _is_passed_on(text, chain):
            break
    fatal = _last_fatal(text, chains[-1].stop if chains else 0)
    return found if fatal is None else [fatal, *found]


def _is_passed_on(text: str, part: range) -> bool:
    """Return True if a part only says that something else has failed, which was told before."""
    return any(sign in text[part.start : part.stop] for sign in _PASSED_ON)


def is_quiet(text: str, place: int) -> bool:
    """Return True if the line at a place is a warning or less."""
    begin = text.rfind("\n", 0, place) + 1
    return _QUIET.search(text[begin : min(place, begin + 200)]) is not None


def line_at(text: str, place: int) -> str:
    """Return the line that a place is in; of a very long one what is around the place."""
    first, last = max(0, place - _LONGEST_LINE), min(len(text), place + _LONGEST_LINE)
    begin, end = text.rfind("\n", first, place), text.find("\n", place, last)
    return text[first if begin < 0 else begin + 1 : last if end < 0 else end]


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


def _last_fatal(text: str, after: int) -> range | None:
    """Return the last words of a process that died without a traceback, or behind it."""
    places = [place for place in (text.rfind(sign) for sign in _FATAL) if place >= after]
    if not places:
        return None
    begin = text.rfind("\n", 0, min(places)) + 1
    # Of several such lines the first is the cause, and what was said right before it may be.
    return range(_lines_back(text, begin, 3) if not after else max(after, begin), len(text))


def _lines_back(text: str, place: int, lines: int) -> int:
    for _ in range(lines):
        if place <= 0:
            return 0
        place = text.rfind("\n", 0, place - 1) + 1
    return place


# How sure an explanation is. What is vague tells that something died, and not of what.
VAGUE, LIKELY, CERTAIN = 1, 2, 3
_SURE = {
    VAGUE: ("the message alone does not tell the cause",),
    LIKELY: ("this is likely, and not certain",),
}
_AROUND = 2000  # characters on each side of a hint in which a message lies
_MOST_PLACES = 12  # places of one hint that are looked at, from the last one on


def _groups(match: re.Match[str]) -> tuple[str, ...]:
    return tuple(group or "" for group in match.groups())


class KnownError(Record):
    """What a message means.

    Args:
        id: Stable id.
        title: What it is about, as the heading of a page has it.
        hints: Texts of which each message has at least one; they are found fast.
        pattern: Regular expression of the message; what its groups find can be named in the texts,
            as in ``{0}``.
        what: What is wrong.
        remedy: What to do.
        consequence: What else follows from it; may be empty.
        command: What can be run at once; may be empty.
        links: Evidence.
        certainty: `CERTAIN`, `LIKELY` or `VAGUE`.
        nouns: What stands for the groups where there is no message.
        unguarded: What the guard does about it, for a program that has none.
        leads: True if a native library prints it, and something else fails for it later.
        words: Returns what is to be named in the texts in place of the groups, or None if it is
            another error after all.
        tell: Returns what a message means where the texts are not enough; None as above.
    """

    id: str
    title: str
    hints: tuple[str, ...]
    pattern: str
    what: str
    remedy: str
    consequence: str = ""
    command: str = ""
    links: tuple[str, ...] = ()
    certainty: int = CERTAIN
    nouns: tuple[str, ...] = ()
    unguarded: str = ""
    leads: bool = False
    words: Callable[[re.Match[str]], tuple[str, ...] | None] = _groups
    tell: Callable[[re.Match[str]], Finding | None] | None = None

    def explain(self, match: re.Match[str]) -> Finding | None:
        """Return what a message means that fits the pattern, None if it is another one."""
        if self.tell is not None:
            return self.tell(match)
        words = self.words(match)
        return None if words is None else self.with_words(*words)

    def about(self) -> Finding:
        """Return what such messages are about."""
        return self.to_unguarded(self.with_words(*self.nouns, severity="info"))

    def to_unguarded(self, finding: Finding) -> Finding:
        """Return a finding with what the guard would do, for a program that has none."""
        both = "; ".join(filter(None, (finding.remedy, self.unguarded)))
        return finding.replace(remedy=both)

    def with_words(self, *words: str, severity: Severity = "error") -> Finding:
        """Return what a message means, with what is to be named in the texts."""
        return Finding(
            self.id,
            self.what.format(*words),
            severity=severity,
            consequence=self.consequence,
            remedy=self.remedy.format(*words),
            command=self.command.format(*words),
            links=self.links,
        )


class Explainer:
    """What a feature can say of the texts of errors.

    Args:
        known: The messages that it knows.
        in_process: Returns what is to be said where the error is raised, with what is true of this
            process; None where that was said otherwise.
        adds: Ids of those for which it is asked.
        is_found: True if such an error is a finding, and not only a text that is explained.
    """

    def __init__(
        self,
        known: Iterable[KnownError],
        in_process: Callable[[Finding], Finding | None] = lambda finding: finding,
        adds: Iterable[str] = (),
        *,
        is_found: bool = False,
    ) -> None:
        self.known = tuple(known)
        self.ids = frozenset(adds)
        self.in_process, self.is_found = in_process, is_found


class Hit(NamedTuple):
    """A message that was found in a text.

    Args:
        known: What is known of it.
        begin: Where it begins.
        end: Where it ends.
        finding: What it means; the line is its evidence.
    """

    known: KnownError
    begin: int
    end: int
    finding: Finding


def best_in(text: str, known: Iterable[KnownError]) -> Hit | None:
    """Return what explains the error that ended a program; None if nothing does.

    Args:
        text: A message, or a log.
        known: What is known.
    """
    text = window_of(text)
    known = tuple(known)
    endings = _endings(text)
    if not endings:  # no log
        return _best(text, _hits(text, known, range(len(text))))
    vague: Hit | None = None
    is_another = False
    for part in endings:
        found = _best(text, _hits(text, known, part))
        if found is not None and found.known.certainty > VAGUE:
            return found
        vague = vague or found
        # It says what is wrong, as errors of Python's do, and nothing is known of it.
        is_python = "Traceback (" in text[part.start : part.stop]
        is_another = found is None and is_python and not _is_passed_on(text, part)
        if is_another:
            break
    begin = endings[-1].start
    earlier = (
        hit
        for hit in _hits(text, known, range(_lines_back(text, begin, _BEFORE), begin))
        if hit.known.certainty > VAGUE
        and not is_quiet(text, hit.begin)
        and (hit.known.leads or not is_another)
    )
    return _best(text, earlier) or vague


def _best(text: str, hits: Iterable[Hit]) -> Hit | None:
    """Return the one that tells most, of those that tell as much the last one."""

    def rank(hit: Hit) -> tuple[bool, int, int]:
        certainty = hit.known.certainty
        # Of what only tells of a death the first is nearest to the cause.
        place = hit.begin if certainty > VAGUE else -hit.begin
        return not is_quiet(text, hit.begin), certainty, place

    found = sorted(hits, key=rank, reverse=True)
    return next((hit for hit in found if not any(_has(other, hit) for other in found)), None)


def _has(other: Hit, hit: Hit) -> bool:
    """Return True if one fits a longer piece of the text, in which the other one is."""
    return (
        other.begin <= hit.begin
        and hit.end <= other.end
        and (other.begin, other.end) != (hit.begin, hit.end)
        and other.known.certainty >= hit.known.certainty
    )


def _hits(text: str, known: Iterable[KnownError], part: range) -> Iterator[Hit]:
    for one in known:
        seen: set[int] = set()
        for begin, end in _near(text, one.hints, part):
            for match in re.finditer(one.pattern, text[begin:end]):
                place = begin + match.start()
                if place in seen or place not in part:
                    continue
                seen.add(place)
                finding = one.explain(match)
                if finding is not None:
                    line = line_at(text, place).strip()
                    line = line if len(line) <= 200 else f"{line[:197]}..."
                    sure = _SURE.get(one.certainty, ())
                    finding = finding.replace(evidence=(line, *finding.evidence, *sure))
                    yield Hit(one, place, begin + match.end(), finding)


def _near(text: str, hints: Iterable[str], part: range) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a text around the places of hints, those that overlap as one."""
    places: list[int] = []
    for hint in hints:  # those near the end: there the program ended
        place, count = text.rfind(hint, part.start, part.stop), 0
        while place >= 0 and count < _MOST_PLACES:
            places.append(place)
            place, count = text.rfind(hint, part.start, place), count + 1
    begin = end = -1
    for place in sorted(places):
        if place > end:
            if end > 0:
                yield begin, min(end, part.stop)
            begin = max(part.start, place - _AROUND)
        end = place + _AROUND
    if end > 0:
        yield begin, min(end, part.stop)


def text_of(error: BaseException) -> str:
    """Return what an error says; nothing if it cannot say it."""
    try:
        return str(error)
    except program_errors(Exception):  # of a class of the program's
        return ""
