"""Layout of text on a terminal: width and color, wrapping, and the shape of a finding."""

from __future__ import annotations

import os
import re
import textwrap
from io import StringIO

from cudaguard.files.text import RULE_LINE, headline, printable, printable_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TextIO, TypeVar

    T = TypeVar("T")

STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}
_NARROWEST, _USUAL, _WIDEST = 40, 80, 120  # columns that text is wrapped to
MOST = 5  # items of a list that are shown without --verbose
HANGING = 2  # columns by which the second line of a paragraph is indented
LABELS = ("", "because", "fix", "more", "run")  # of what stands below a headline
FEW = 3  # lines of evidence that are shown without --verbose
COLOR = {"info": "blue", "warning": "yellow", "error": "red"}  # of severities
# What stays in one line, so that it can be copied and searched for: what is quoted, and an error.
_WHOLE = re.compile(r"""`[^`]*`|"[^"]*"|(?<!\S)\(?[\w.]*(?:Error|Exception|error|ERROR): .*""")
_HELD = "\0"  # a blank within what stays in one line
# Signs of two columns: "\1" stands behind one for the second, while lines are broken.
_WIDE = re.compile("[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uff00-\uff60\U0001f300-\U0001faff]")
_PATH = re.compile(r"(?<![^\s('\"])(?:~|\.{0,2})/[\w.+@~-]+/[\w./+@~-]*\w(?::\d+)?")


class Document(StringIO):
    """Output of a command on its way to a file: it gets no color."""


def has_color(stream: TextIO) -> bool:
    """Return True if ANSI colors may be written to stream.

    ``NO_COLOR`` (any value that is not empty) wins over ``FORCE_COLOR``; without either, only a
    terminal gets color.
    """
    if isinstance(stream, Document) or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


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
    said = os.environ.get("COLUMNS", "")
    wanted = int(said) if said.isdecimal() and len(said) < 10 else 0
    return max(_NARROWEST, min(_WIDEST, wanted or columns_of(stream) or _USUAL))


def columns_of(stream: TextIO) -> int:
    """Return how many columns a terminal has; 0 if it does not tell."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


class Page:
    """Text for one stream, a paragraph at a time; without a stream, for a file.

    A verbose one shows lists whole, which are elsewhere (`more`) else; `is_cut` is True once a list
    was not.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        verbose: bool = False,
        width: int = 0,
        more: str = "--verbose",
    ) -> None:
        self.verbose, self._more = verbose, more
        self.width = width or width_of(stream)
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

        A `lead` (a mark, a label, columns of a table) stands before them; what follows them `whole`
        is not broken: a line of source, a command. The style `mark` is that of the first word of
        the lead alone. Other lines are indented by `hanging` columns, fewer in a narrow terminal.
        """
        if not (text or whole or lead):
            return
        rest = indent + (min(hanging, self.width // 5) if self.width else hanging)
        first, lines = indent + len(lead), [f"{text} {whole}".strip() if whole else text]
        if self.width and first + len(_WIDE.sub("..", lines[0])) > self.width:
            held = _WHOLE.sub(lambda found: found[0].replace(" ", _HELD), text)
            held = _WIDE.sub("\\g<0>\1", held)
            lines = textwrap.wrap(
                f"{held} {whole.replace(' ', _HELD)}", self.width,
                initial_indent=" " * first, subsequent_indent=" " * rest,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
            lines = [line.strip().replace(_HELD, " ").replace("\1", "") for line in lines]
        word, end, others = lead.partition(" ")
        lead = f"{self.painted(word, mark or style)}{end}{self.painted(others, style)}"
        self._lines.append(" " * indent + f"{lead}{self.painted(lines[0], style)}".rstrip())
        self._lines += [" " * rest + self.painted(line, style) for line in lines[1:]]

    def block(self, text: str, indent: int = 0, *, style: str = "") -> None:
        """Add lines as they are: source, a patch, the output of a program."""
        for line in text.split("\n"):
            self._lines.append(f"{' ' * indent}{self.painted(line, style)}" if line else "")

    def labeled(self, label: str, text: str, indent: int, lead: str | None = None) -> None:
        """Add one part of something, if it is there, under its label; a command is not broken.

        What stands before the text is its label, or what is given as `lead`.
        """
        first, *rule = text.split(RULE_LINE)
        lead = f"{label}: " if lead is None else lead
        if label == "run" and text:
            self.add("", indent, whole=f"{lead}{text}", style="cyan")
        elif first:
            self.add(first, indent, lead=lead, hanging=len(lead) or HANGING)
        if rule:
            self.block("\n".join(rule), indent + 4)

    def items(self, label: str, items: Sequence[str], indent: int, most: int = MOST) -> None:
        """Add the items of a list, the label before the first one; the first few of many."""
        shown, more = self.cut(items, most)
        lead = f"{label}: " if label else ""
        for item in (*shown, *filter(None, [more])):
            self.labeled(label, item, indent, lead)
            lead = " " * len(lead)

    def finding(
        self,
        finding: Mapping[str, Any],
        lead: str,
        indent: int = 0,
        *,
        mark: str = "",
        parts: Sequence[str] = LABELS,
    ) -> None:
        """Add a finding as `Finding.to_dict` returns it: the headline, then what stands below.

        Where reasons are no part of it, all that was found is the headline.
        """
        what = printable(finding["what"])
        first, follows, reason = headline(what) if "because" in parts else (what, "", "")
        self.add(first, indent, lead=lead, mark=mark, style="bold")
        links = finding.get("links", ())
        for label, texts in zip(LABELS, (
            (f"{follows} {finding.get('consequence') or ''}".strip(),),
            (reason, *finding.get("evidence", ())),
            (finding.get("remedy"),),
            links if self.verbose else links[:1],
            (finding.get("command"),),
        )):  # fmt: skip
            if label in parts:
                found = [printable_part(text) for text in texts if text]
                self.items(label, found, indent + HANGING, FEW - 1 + bool(reason))

    def cut(
        self, items: Sequence[T], most: int = MOST, option: str | None = None
    ) -> tuple[Sequence[T], str]:
        """Return the items that are shown, and how many there are besides, in words."""
        if self.verbose or len(items) <= most + 1:  # "and 1 more" takes as much room as that one
            return items, ""
        self.is_cut = True
        option = f" ({self._more})" if option is None else option
        return items[:most], f"and {len(items) - most} more{option}"

    def listed(self, items: Sequence[str], most: int = MOST, option: str | None = None) -> str:
        """Return items as words in a row, the first few of many."""
        shown, more = self.cut(items, most, option)
        return f"{', '.join(shown)} {more}".rstrip()

    def painted(self, text: str, style: str) -> str:
        """Return a text in a style, or as it is where the stream gets no color."""
        if not text or self._stream is None or not has_color(self._stream):
            return text
        if not style:
            return _PATH.sub(lambda found: f"\033[{STYLES['dim']}m{found[0]}\033[0m", text)
        codes = ";".join(str(STYLES[word]) for word in style.split())
        return f"\033[{codes}m{text}\033[0m"
