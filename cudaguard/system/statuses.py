"""Statuses of CUDA and of its libraries: what one means, and which ones a text is about.

They are read from ``statuses.txt`` when something is explained.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import chain

from cudaguard.files import os, packaged_text
from cudaguard.model import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

CUDA = "cuda"
_FILE = os.path.join(os.path.dirname(__file__), "statuses.txt")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class StatusCode(NamedTuple):
    """An answer of a library that is an error."""

    library: str  # ``cuda``, ``cublas``, ..
    title: str  # what the library is called
    number: int  # its number; 0 if only the name is known
    names: tuple[str, ...]  # its names in the headers; CUDA_ERROR_ ones only where they differ
    words: tuple[str, ...]  # what messages say in place of the name
    meaning: str  # what it means
    fix: str  # what to do

    @property
    def name(self) -> str:
        """The usual name, with the number."""
        return f"{self.names[0]} ({self.number})" if self.number else self.names[0]


def _bare(name: str) -> str:
    """Return a name in small letters, without what stands between its words."""
    return name.replace("_", "").lower()


class _Table:
    """Contents of ``statuses.txt``."""

    def __init__(self) -> None:
        self.titles: dict[str, tuple[str, str]] = {}  # library -> title, beginning of the names
        self.statuses: list[StatusCode] = []
        self.kinds: list[tuple[str, str, str]] = []
        self.patterns: dict[str, re.Pattern[str]] = {}
        library = ""
        text = packaged_text(_FILE)
        lines = [line for line in text.splitlines() if line and line[0] != "#"]
        for line in lines:
            if line[0] == "[":
                library, _, rest = line[1:].partition("]")
                title, _, prefix = rest.strip().partition(" ")
                self.titles[library] = title, prefix
            elif library == "texts":
                name, _, pattern = line.partition(" = ")
                self.patterns[name] = re.compile(pattern)
            elif library == "kinds":
                part, _, rest = line.partition("; ")
                meaning, fix = rest.split(" | ", 1)
                self.kinds.append((part, meaning, fix))
            elif " | " in line:
                self._add(library, *line.split(" | ", 3))
            else:
                for number, _, name in (pair.partition(" ") for pair in line.split(", ")):
                    self.statuses.append(self.named(library, int(number), name))
        self.by_name = {_bare(name): one for one in reversed(self.statuses) for name in one.names}
        self.by_words = {say.lower(): one for one in reversed(self.statuses) for say in one.words}
        self.by_number = {(code.library, code.number): code for code in reversed(self.statuses)}

    def _add(self, library: str, number: str, names: str, rest: str, fix: str) -> None:
        title, prefix = self.titles[library]
        words, _, meaning = rest.partition("; ")
        pairs = zip((prefix, "CUDA_ERROR_"), names.split("/"))
        full = tuple(f"{first}{name}" for first, name in pairs if name != "-")
        said = tuple(words.split(" // ")) if words != "-" else ()
        self.statuses.append(StatusCode(library, title, int(number), full, said, meaning, fix))

    def named(self, library: str, number: int, name: str) -> StatusCode:
        """Return a status of which only name and number are known, maybe ` = ` its words."""
        title, prefix = self.titles[library]
        name, _, words = name.partition(" = ")
        said = _CAPITAL.sub("_", name).upper()
        meaning, fix = next(rest for part, *rest in self.kinds if part in said)
        said_so = (words,) if words else ()
        return StatusCode(library, title, number, (f"{prefix}{name}",), said_so, meaning, fix)


@cache
def status_table() -> _Table:
    """Return what is known of statuses."""
    return _Table()


def meaning(number: int) -> str:
    """Return what a status of CUDA other than success means, and what to do about it."""
    found = status_table().by_number.get((CUDA, number))
    return found.meaning if found else "see CUresult in the CUDA driver API reference"


# --- Statuses in texts ----------------------------------------------------------------------------

# Words of that many pieces count without one who reports them, and without a word of CUDA.
_DISTINCT, _UNMISTAKABLE = 4, 5
_BEFORE = 120  # characters before an answer in which its actor is


def status_begun_by(text: str) -> StatusCode | None:
    """Return the status whose words begin with these, two at least; None if none do."""
    said = text.strip(" .!\n").lower().removeprefix("an ")
    is_enough = len(re.split("[ -]", said)) > 1
    begun = (words for words in status_table().by_words if is_enough and words.startswith(said))
    return status_table().by_words.get(next(begun, ""))


def statuses_in(text: str) -> Iterator[tuple[int, int, StatusCode]]:
    """Yield where a text tells of a status: begin, end, and the status.

    A number counts only in a line that has neither name nor words, as in "unknown error (303)".
    """
    low, lines, table = text.lower(), set[int](), status_table()
    names, caller_of, actor, number, spoken = table.patterns.values()
    said = sorted((words for words in table.by_words if words in low), key=len, reverse=True)
    words = re.compile(rf"(?:{'|'.join(map(re.escape, said)) or '(?!)'})(?!(?<=error) \(\d)", re.I)
    for match in chain(*(one.finditer(text) for one in (names, spoken, words, number))):
        line = text.rfind("\n", 0, match.start())
        before = text[max(line + 1, match.start() - _BEFORE) : match.start()]
        caller = caller_of.search(before)
        if match.re is names:
            status = _named(match[0])
        elif match.re is spoken:
            first, spelled = table.titles[match[1].lower()][1], re.split("[ _]", match[2])
            tries = (_bare("".join((first, *spelled[:n]))) for n in range(len(spelled), 1, -1))
            status = next(filter(None, map(table.by_name.get, tries)), None)
        elif match.re is number:
            library = caller[1].lower() if caller else ""
            key = library if library in table.titles else CUDA, int(match[1])
            status = table.by_number.get(key) if caller and line not in lines else None
        else:
            pieces, status = len(re.split("[ -]", match[0])), table.by_words[match[0].lower()]
            is_reported = caller or pieces >= _DISTINCT or status.library != CUDA
            is_named = is_reported and actor.search(f"{before}{match[0]}")
            status = status if pieces >= _UNMISTAKABLE or is_named else None
        if status is not None:
            lines.add(line)
            yield match.start(), match.end(), status


def _named(name: str) -> StatusCode | None:
    """Return the status with a name; one that is not in the table by what its name says."""
    known = status_table()
    found = known.by_name.get(_bare(name))
    if found is not None or name.endswith("SUCCESS"):
        return found
    if name.startswith("CUDA_ERROR_"):
        name = f"cudaError{name[11:].title().replace('_', '')}"
    begun = ((of, p) for of, (_, p) in known.titles.items() if p and name.startswith(p))
    return next((known.named(of, 0, name[len(p) :]) for of, p in begun), None)
