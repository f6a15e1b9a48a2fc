"""What the commands of a page print: they are run, in a folder with the files that it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

from _generate.blocks import Block, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What a page shows in place of the folder, and of where packages are installed.
HOME, PACKAGES = "/home/me", ".../site-packages"
TIME_LIMIT = 300.0  # seconds for the commands of one block
# What differs from run to run, and from machine to machine.
_SETTLED = (
    (r"--args python[\d.]* ", "--args python "),
    (r"\d+(?:\.\d+)? (?:ms|s|seconds|minutes)\b", "N s"),
    (r"\d{4}-\d\d-\d\d", "DAY"),
    (r"\b[Pp]ython:? 3\.\d+\.\d+\w*", "python 3"),
    (r"platform \S+", "platform P,"),
    (r"\bprocess \d+", "process N"),
    (r"interpreter \S+", "interpreter P,"),
    (r"\d+ runs\b", "N runs"),
    (r"^ *[~^]+ *\n", ""),  # of tracebacks, from Python 3.11 on
    (r"[ \t]+$", ""),
)


class Shown:
    """A block that is run, and the one with what it prints.

    Args:
        block: The commands, or the program.
        printed: What the page says that they print; None if it says nothing.
        found: What they print.
        status: With which status the last one ended.
    """

    def __init__(self, block: Block, printed: Block | None, found: str, status: int) -> None:
        self.block, self.printed, self.found, self.status = block, printed, found, status

    @property
    def is_right(self) -> bool:
        """True if the page shows what is printed, but for what differs from run to run."""
        wanted = int(self.block.option("status") or 0)
        if self.status != wanted:
            return False
        return self.printed is None or settled(self.printed.body) == settled(self.found)


def settled(text: str) -> str:
    """Return a text without what differs from run to run."""
    for pattern, name in _SETTLED:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def needed(text: str) -> set[str]:
    """Return the modules without which blocks of a page cannot be run."""
    return {block.option("needs") for block in blocks_of(text)} - {""}


def run(text: str, folder: Path) -> Iterator[Shown]:
    """Run the blocks of a page, in its order.

    Args:
        text: The page.
        folder: An empty folder.
    """
    blocks = blocks_of(text)
    for block in blocks:
        if block.file:
            (folder / block.file).write_text(_without_name(block), encoding="utf-8")
    for block, after in zip(blocks, [*blocks[1:], None]):
        if block.is_run:
            found, status = _print(block, folder)
            yield Shown(block, after if after and after.is_printed else None, found, status)


def updated(text: str, folder: Path) -> str:
    """Return a page with what its commands print now, where that has changed."""
    changes = [
        (shown.printed, shown.found)
        for shown in run(text, folder)
        if shown.printed is not None and not shown.is_right
    ]
    for printed, found in reversed(changes):
        end = printed.begin + len(printed.body)
        text = f"{text[: printed.begin]}{found}{text[end:]}"
    return text


def _without_name(block: Block) -> str:
    """Return a file without the line that names it, so that line numbers are those of the block."""
    name = f"# {block.file}\n"
    return block.body[len(name) :] if block.body.startswith(name) else block.body


def _print(block: Block, folder: Path) -> tuple[str, int]:
    kept = ("LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")
    scripts = os.pathsep.join((os.path.dirname(sys.executable), sysconfig.get_path("scripts")))
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env.update(
        PATH=f"{scripts}{os.pathsep}{os.environ['PATH']}", HOME=str(folder), COLUMNS="100",
        PYTHONDONTWRITEBYTECODE="1",
    )  # fmt: skip
    program = [sys.executable, "-c", block.body]
    if block.language != "python":
        program = ["bash", "-c", "\n".join(_commands(block.body))]
    done = subprocess.run(
        program, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, text=True, timeout=TIME_LIMIT, check=False,
    )  # fmt: skip
    found = done.stdout.replace(str(folder), HOME)
    return found.replace(sysconfig.get_path("purelib"), PACKAGES), done.returncode


def _commands(body: str) -> Iterator[str]:
    """Yield the commands of a block, in which each line begins with ``$`` or goes on with one."""
    goes_on = False
    for line in body.splitlines():
        if not (goes_on or line.startswith("$ ")):
            raise ValueError(f"neither a command nor a comment: {line}")
        yield line if goes_on else line[2:]
        goes_on = line.endswith("\\")
