"""Explain an error message, or the id of a rule or finding, and what to do about it.

Ends with status 1 if that is not known.
"""

from __future__ import annotations

import os
import re
import shlex
import sys

from cudaguard.tools.common import FOUND, OK, add_format, json_text, note, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_SLOTS = frozenset({"FILE", "SCRIPT", "PACKAGE"})
_ID = re.compile(r"[A-Za-z][\w-]{0,40}\d[\w-]{0,10}")
# The outermost frame of a traceback is the program's.
_PROGRAM = re.compile(
    r'Traceback \(most recent call last\):\n  File "([^"\n]{1,400}\.py)", line \d+, in <module>'
)

EXAMPLES = """\
examples:
  cudaguard explain CG001                     a rule or a finding, by its id
  cudaguard explain 'undefined symbol: _ZN2at4_ops'
                                              an error message, or a part of it
  python train.py 2>&1 | cudaguard explain -  whatever a program says

exit status: 0 it is known, 1 nothing is known of it, 2 wrong usage
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "about", nargs="+", metavar="TEXT", help="a message, an id, or - to read from stdin"
    )
    add_format(parser)


def execute(args: Namespace) -> int:
    """Explain, and return the exit status."""
    from cudaguard.core.passing_errors import closest
    from cudaguard.core.patterns import closest_id
    from cudaguard.files.layout import COLOR, Page
    from cudaguard.tools.known import explain, ids

    text = " ".join(args.about)
    if text == "-":  # whatever a program says may come, in whatever encoding
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    finding = explain(text)
    is_id = _ID.fullmatch(text.strip())
    near = [(closest_id(text, ids()), "")] if is_id and finding is None else []
    near = closest(text) if finding is None and not is_id else near
    command = f"cudaguard explain {near[0][0]}" if near and near[0][0] else ""
    if finding is not None:
        command, programs = finding.command, _PROGRAM.findall(text)
        if "SCRIPT" in command.split() and programs:  # a traceback in the text names it
            path = programs[-1].removeprefix(os.getcwd() + os.sep)
            command = command.replace("SCRIPT", shlex.quote(path))
        # Nothing that can be pasted, or what has just been done.
        if not _SLOTS.isdisjoint(command.split()) or command == f"cudaguard explain {finding.id}":
            command = ""
    found = None if finding is None else {**finding.to_dict(), "command": command}
    if args.format == "json":
        show(json_text({"tool": "explain", "finding": found, "command": command}))
    elif finding is not None and found is not None:
        page = Page(sys.stdout, verbose=args.verbose)
        page.finding(found, f"[{finding.id}] ", mark=COLOR[finding.severity])
        show(str(page))
    elif is_id:
        note("explain", f"there is no id {text.strip()!r}", command or "cudaguard rules list")
    else:
        told = "; ".join(f'{id} "{title}"' for id, title in near)
        said = f"no match; closest: {told}" if told else "no match: it says nothing of CUDA"
        note("explain", said, command or "cudaguard doctor")
    return FOUND if finding is None else OK
