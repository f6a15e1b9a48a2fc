"""How text is laid out on a terminal: its width and color, the wrapper, and how a finding looks."""

from __future__ import annotations

import os
import re
import unicodedata
from io import StringIO

from cudaguard.files.text import RULE_LINE, labeled, printable, printable_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, TextIO, TypeVar

    T = TypeVar("T")

STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
NARROWEST, WIDEST = 40, 120  # columns that text is wrapped to
_USUAL = 80  # columns of a terminal that does not tell
MOST = 5  # items of a list that are shown without --verbose
HANGING = 2  # columns by which the second line of a paragraph is indented
LABELS = ("evidence", "consequence", "remedy", "see", "run")  # of the parts of a finding
COLOR = {"info": "blue", "warning": "yellow", "error": "red"}  # of severities
_COMMAND = "run"
# What stays in one line, so that it can be copied and searched for: a word (a path, an id), what
# is quoted, and an error up to its end.
_TOKEN = re.compile(r"""(?:`[^`]*`|"[^"]*"|\S)+""")
_ERROR = re.compile(r"(?<!\S)\(?[\w.]*(?:Error|Exception|error|ERROR): ")


class Document(StringIO):
    """What a command shows, on its way to a file: it gets no color."""


def has_color(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Return True if ANSI colors may be written to stream.

    ``NO_COLOR`` (any value that is not empty) wins over ``FORCE_COLOR``; without either, only a
    terminal gets color.
    """
    environ = os.environ if environ is None else environ
    if isinstance(stream, Document):
        return False
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return environ["FORCE_COLOR"] != "0"
    return is_terminal(stream) and environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO) -> bool:
    """Return True if the stream is a terminal; one that is closed is none."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def width_of(stream: TextIO | None) -> int:
    """Return the columns that text is wrapped to, 40 to 120; 0 where it is not wrapped.

    Only a terminal has a width, and ``COLUMNS`` wins over what it says. Pipes, files and logs get
    whole lines, so that a search finds what is told.
    """
    if stream is None or not is_terminal(stream):
        return 0
    return max(NARROWEST, min(WIDEST, _said() or columns_of(stream) or _USUAL))


def columns_of(stream: TextIO) -> int:
    """Return how many columns a terminal has; 0 if it does not tell."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def _said() -> int:
    try:
        return max(0, int(os.environ.get("COLUMNS", "")))
    except ValueError:
        return 0


class Page:
    """Text for one stream, a paragraph at a time.

    Args:
        stream: Where it goes; None for a text of which nothing is known, as in a file.
        verbose: True if lists are shown whole.

    Attributes:
        is_cut: True once a list was not.
    """

    def __init__(self, stream: TextIO | None = None, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self.width = width_of(stream)
        self._stream = stream
        self.is_cut = False
        self._lines: list[str] = []

    def __str__(self) -> str:
        """Return what was added."""
        return "\n".join(self._lines)

    def blank(self) -> None:
        """Add an empty line, but not as the first one."""
        if self._lines:
            self._lines.append("")

    def add(
        self,
        text: str,
        indent: int = 0,
        *,
        lead: str = "",
        whole: str = "",
        style: str = "",
        mark: str = "",
        hanging: int = HANGING,
    ) -> None:
        """Add a paragraph; nothing if there are no words.

        Args:
            text: Its words.
            indent: Columns before it.
            lead: What stands before the words: a mark, a label, columns of a table.
            whole: What follows them and is not broken: a line of source, a command.
            style: Of all; one of `STYLES`.
            mark: The style of the first word of the lead alone.
            hanging: Columns that its other lines are indented by, beside `indent`; fewer are
                taken in a narrow terminal.
        """
        said = f"{text} {whole}".strip() if whole else text
        if not (said or lead):
            return
        first = indent + columns(lead)
        rest = indent + (min(hanging, self.width // 5) if self.width else hanging)
        lines = [said]
        if self.width and first + columns(said) > self.width:
            lines = _wrapped([*tokens(text), *filter(None, [whole])], self.width, first, rest)
        if mark:
            word, end, others = lead.partition(" ")
            lead = f"{self.painted(word, mark)}{end}{others}"
        self._lines.append(" " * indent + self.painted(f"{lead}{lines[0]}".rstrip(), style))
        self._lines += [" " * rest + self.painted(line, style) for line in lines[1:]]

    def block(self, text: str, indent: int = 0, *, style: str = "") -> None:
        """Add lines as they are: source, a patch, the output of a program."""
        for line in text.split("\n"):
            self._lines.append(f"{' ' * indent}{self.painted(line, style)}" if line else "")

    def labeled(self, label: str, text: str, indent: int) -> None:
        """Add one part of something under its label; a command stays in one line."""
        first, *rule = text.split(RULE_LINE)
        if label == _COMMAND:
            self.add("", indent, whole=f"{label}: {text}")
        elif first:
            self.add(first, indent, lead=f"{label}: ")
        self.block("\n".join(rule), indent + 4) if rule else None

    def items(self, label: str, items: Sequence[str], indent: int) -> None:
        """Add the items of a list, each under the label; the first few of many."""
        shown, more = self.cut(items)
        for item in shown:
            self.labeled(label, item, indent) if label else self.add(item, indent)
        self.add(more, indent)

    def finding(
        self,
        finding: Mapping[str, Any],
        lead: str,
        indent: int = 0,
        *,
        mark: str = "",
        parts: Sequence[str] = LABELS,
    ) -> None:
        """Add a finding: what was found, then its parts, each under its label.

        Args:
            finding: As `Finding.to_dict` returns it, or a part of that.
            lead: What stands before it.
            indent: Columns before it.
            mark: The style of its first word.
            parts: Labels of what is told besides.
        """
        self.add(printable(finding["what"]), indent, lead=lead, mark=mark)
        for label, texts in labeled(finding):
            if label in parts:
                self.items(label, [*map(printable_part, texts)], indent + HANGING)

    def cut(
        self, items: Sequence[T], most: int = MOST, option: str = " (--verbose)"
    ) -> tuple[Sequence[T], str]:
        """Return the items that are shown, and how many there are besides, in words."""
        if self.verbose or len(items) <= most + 1:  # "and 1 more" takes as much room as that one
            return items, ""
        self.is_cut = True
        return items[:most], f"and {len(items) - most} more{option}"

    def listed(self, items: Sequence[str], most: int = MOST, option: str = " (--verbose)") -> str:
        """Return items as words in a row, the first few of many."""
        shown, more = self.cut(items, most, option)
        return f"{', '.join(shown)} {more}".rstrip()

    def painted(self, text: str, style: str) -> str:
        """Return a text in a style, or as it is where the stream gets no color."""
        if not (style and text) or self._stream is None or not has_color(self._stream):
            return text
        return f"\033[{STYLES[style]}m{text}\033[0m"


def add_written(page: Page, text: str) -> None:
    """Add a text that was written for 100 columns: paragraphs, lists, and tables of two columns.

    Args:
        page: Where to.
        text: Lines; an indented one is an item, with what is far behind it as its second column.
    """
    if not page.width:
        page.block(text)
        return
    paragraph: list[str] = []
    for line in text.strip("\n").split("\n"):
        if line[:1] not in ("", " ") and not line.endswith(":"):
            paragraph.append(line)
            continue
        page.add(" ".join(paragraph), hanging=0)
        paragraph.clear()
        if not line:
            page.blank()
        elif columns(line) <= page.width:
            page.block(line)
        else:
            _add_row(page, line)
    page.add(" ".join(paragraph), hanging=0)


def _add_row(page: Page, line: str) -> None:
    """Add a line of a table; its second column goes below the first where there is no room."""
    indent = len(line) - len(line.lstrip())
    first, _, second = line.strip().partition("  ")
    second = second.strip()
    if indent > page.width // 2:  # the second column alone
        page.add(first, 6)
        return
    for part, margin in ((first, indent), (second, indent + 4)):
        if part.startswith("cudaguard "):
            page.block(part, margin)
        else:
            page.add(part, margin)


def tokens(text: str) -> Iterator[str]:
    """Yield what of a text is not broken: words, what is quoted, an error with what it says."""
    for error in _ERROR.finditer(text):
        before = text[: error.start()]
        if before.count("`") % 2 or before.count('"') % 2:  # it is quoted, and so is its end
            continue
        end = _end(text, error.start())
        yield from _words(before)
        yield text[error.start() : end]
        yield from tokens(text[end:])
        return
    yield from _words(text)


def _words(text: str) -> Iterator[str]:
    yield from (found[0] for found in _TOKEN.finditer(text))


def _end(text: str, start: int) -> int:
    """Return where an error ends: behind its closing bracket if it is in brackets."""
    if text[start] != "(":
        return len(text)
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if not depth:
            behind = text.find(" ", at)
            return behind if behind >= 0 else len(text)
    return len(text)


def columns(text: str) -> int:
    """Return how many columns a terminal takes for a text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF")
        for one in text
    )


def _wrapped(words: Iterable[str], width: int, first: int, rest: int) -> list[str]:
    """Return words as lines.

    Args:
        words: What is not broken.
        width: Columns of the terminal.
        first: Columns that are taken in the first line.
        rest: Those taken in all others.
    """
    lines = [""]
    for word in words:
        taken = first if len(lines) == 1 else rest
        size = columns(word)
        has_room = taken + columns(lines[-1]) + bool(lines[-1]) + size <= width
        is_empty = not lines[-1] and not (first > rest and len(lines) == 1 and rest + size <= width)
        if has_room or is_empty:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
        else:
            lines.append(word)
    return lines
