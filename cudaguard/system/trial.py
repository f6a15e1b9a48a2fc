"""Imports modules in a child process, and tells how that ended.

The child is as it would be without us: nothing of the guard is in it. It imports what is installed,
and not what lies in the working directory.
"""

from __future__ import annotations

import json
import os
import sys
from typing import NamedTuple

from cudaguard.files import read_bytes
from cudaguard.system.child import run
from cudaguard.system.lending import WITHOUT_FOLDER, lend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

SIGN = "cudaguard-doctor: "
# In one write each, so that a crash loses nothing. The first word of a line tells how far it came.
_CHILD = (
    WITHOUT_FOLDER
    + """
import os, sys
def _note(text, *, _write=os.write, _out=os.dup(1)):
    _write(_out, ("\\n" + {sign!r} + text + "\\n").encode())
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
except (ImportError, OSError, ValueError):
    pass
for _name in {names!r}:
    _note("import " + _name)
    __import__(_name)
{last}
_note("imported")
"""
)
_LINES = 3  # of what a child said last
_OURS = ('File "<string>"', "^", "~", "Traceback (most recent", "Current thread", "Thread 0x",
         "Extension modules:", "<no Python frame>")  # fmt: skip


class Ending(NamedTuple):
    """How a child ended.

    Args:
        kind: Empty if all is well, else ``signal``, ``hang``, ``error`` (an exception) or ``exit``.
        text: The signal, the error's last line, or the exit status.
        at: The module that was being imported; empty if all were, and the end of the process is
            what failed.
        said: What it said last on standard error.
        seconds: How long it took.
        answer: What the code that was added has noted.
    """

    kind: str
    text: str
    at: str
    said: tuple[str, ...]
    seconds: float
    answer: Any = None


def try_imports(
    names: Sequence[str], environ: Mapping[str, str], limit: float, *, code: str = ""
) -> Ending:
    """Import modules in this order, in a child.

    Args:
        names: The modules.
        environ: The environment.
        limit: Seconds.
        code: Run after the imports; it may ``_note("answer " + json)``.

    Raises:
        OSError: No child can be started.
    """
    variables = {**environ, "CUDAGUARD": "off"}
    last = lend() + code if code else ""
    program = _CHILD.format(sign=SIGN, names=tuple(names), last=last)
    command = (sys.executable, "-X", "faulthandler", "-c", program)
    ended = run(command, variables, limit)
    notes = [line[len(SIGN) :] for line in ended.output.splitlines() if line.startswith(SIGN)]
    reached = notes[-1] if notes else ""
    answers = [note.partition(" ")[2] for note in notes if note.startswith("answer ")]
    kind, text = _kind(ended.status, ended.errors)
    return Ending(
        kind,
        text,
        "" if reached == "imported" else reached.partition(" ")[2],
        _said(ended.errors),
        ended.seconds,
        json.loads(answers[-1]) if answers else None,
    )


def _kind(status: int | None, errors: str) -> tuple[str, str]:
    if status == 0:
        return "", ""
    if status is None:
        return "hang", ""
    if status < 0:
        return "signal", _name_of(-status)
    lines = [line for line in errors.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in errors and lines:
        last = next((line for line in reversed(lines) if line[:1].strip()), lines[-1])
        return "error", last.strip()
    return "exit", str(status)


def _name_of(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _said(errors: str) -> tuple[str, ...]:
    """Return the lines that tell most: what a library said before it died, and where."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith("Fatal Python error"):
            frames = [one for one in lines[number:] if one.startswith("File ")]
            telling = [one for one in frames if not _is_pythons(one)]
            return (*lines[max(0, number - 2) : number], line, *telling[:1])
    return tuple(line for line in lines if not line.startswith(_OURS))[-_LINES:]


def _is_pythons(frame: str) -> bool:
    """Return True if a line of a stack is in the standard library or in our own code."""
    place = frame.partition('"')[2]
    standard = os.path.dirname(os.__file__)
    is_standard = place.startswith(standard) and "-packages" not in place
    return is_standard or place.startswith("<")


def end_children() -> None:
    """End the children of this process, and each with it what it has started."""
    from glob import glob
    from signal import SIGTERM

    for file in glob("/proc/self/task/*/children"):
        try:
            for pid in map(int, read_bytes(file, 1 << 20).split()):
                os.kill(pid, SIGTERM)  # to the keepers: see `cudaguard.system.keeper`
        except OSError:  # it has ended meanwhile
            continue
