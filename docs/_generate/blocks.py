"""Code blocks of a page, and what is said of each: whether it is run, and by what.

A comment on the line above a block says so::

    <!-- run -->                its commands, or its Python, are run by tests/test_blocks.py
    <!-- run: status 1, needs decord -->    with that status, where that module is installed
    <!-- run by tests/test_x.py::test_y -->
    <!-- file: cudaguard.toml -->         the commands of this page find it under that name
    <!-- not run: it needs a GPU -->

Python that begins with ``# name.py`` is such a file without a comment. A block of text behind one
that is run is what that prints. Blocks inside the generated parts of a page need no comment.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<mark>[^\n]*?) -->\n)?^(?P<fence>[ ]*```)(?P<language>[^\n]*)\n"
    r"(?P<body>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
_GENERATED = re.compile(
    r"^<!-- (?P<part>[^\n]+): written by docs/generate.py -->\n.*?^<!-- end of (?P=part) -->$",
    re.DOTALL | re.MULTILINE,
)
_NAME = re.compile(r"# (\S+\.py)\n")


class Block(NamedTuple):
    """A code block of a page.

    Args:
        language: As it stands behind the fence.
        body: The lines between the fences.
        mark: What the comment above it says; empty without one.
        begin: Where its body begins in the page.
        line: The number of its first line.
        is_printed: True if it is what the block before it prints.
    """

    language: str
    body: str
    mark: str
    begin: int
    line: int
    is_printed: bool

    @property
    def file(self) -> str:
        """The name under which the commands of the page find it; empty if it is no file."""
        if self.mark.startswith("file: "):
            return self.mark[len("file: ") :]
        name = _NAME.match(self.body) if self.language == "python" and not self.mark else None
        return name[1] if name else ""

    @property
    def is_run(self) -> bool:
        """True if tests/test_blocks.py runs it."""
        return self.mark == "run" or self.mark.startswith("run: ")

    def option(self, name: str) -> str:
        """Return what stands behind a word of ``<!-- run: ... -->``; empty without it."""
        said = re.findall(rf"\b{name} (\S+?)(?:,|$)", self.mark.partition(": ")[2])
        return said[0] if said else ""


def blocks_of(text: str) -> list[Block]:
    """Return the code blocks of a page, but for those that are written by docs/generate.py."""
    generated = [match.span() for match in _GENERATED.finditer(text)]
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        if any(first <= match.start() < last for first, last in generated):
            continue
        if match["language"].startswith("{"):  # a directive of Sphinx
            continue
        follows = bool(found) and found[-1].is_run and not text[end : match.start()].strip()
        is_printed = follows and match["language"] in ("text", "diff") and not match["mark"]
        line = text.count("\n", 0, match.start("fence")) + 1
        found.append(
            Block(
                match["language"], match["body"], match["mark"] or "", match.start("body"), line,
                is_printed,
            )
        )  # fmt: skip
        end = match.end()
    return found
