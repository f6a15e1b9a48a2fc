"""Facts about a stream: whether it is a terminal and gets color, and how wide it is."""

from __future__ import annotations

import os
from io import StringIO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

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


def paint(text: str, style: str, stream: TextIO) -> str:
    """Return `text` in a style of `STYLES`, plain where the stream gets no color."""
    return f"\033[{STYLES[style]}m{text}\033[0m" if has_color(stream) else text


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
