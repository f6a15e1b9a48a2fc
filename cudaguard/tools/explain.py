"""Explain an error message, or the id of a rule or finding, and what to do about it."""

from __future__ import annotations

import os
import re
import shlex
import sys

from cudaguard.tools.common import FOUND, OK, UsageError, add_format, json_text, note, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_SLOTS = frozenset({"FILE", "SCRIPT", "PACKAGE"})
# What is typed alone, and the message that it is a part of.
_COMPLETE = (
    (re.compile(r"-?\d{4,10}|1[23]\d|-\d{1,3}"), "exit code {}"),
    (re.compile(r"\d{1,3}"), "CUDA error {}"),
    (re.compile(r"(?i)oom"), "CUDA out of memory"),
    (re.compile(r"_Z\w{1,400}|(?:cu|nv|nccl)[a-z]{0,40}[A-Z]\w{1,200}"), "undefined symbol: {}"),
    (re.compile(r"lib[\w.+-]{1,200}\.so[\d.]{0,40}|[\w.-]{1,200}\.dll"), "{} not found"),
)
_ID = re.compile(r"[A-Za-z][A-Za-z-]{0,40}\d[\w-]{0,10}")
# The outermost frame of a traceback is the program's.
_PROGRAM = re.compile(
    r'Traceback \(most recent call last\):\n  File "([^"\n]{1,400}\.py)", line \d+, in <module>'
)

EXAMPLES = """\
examples:
  cudaguard explain CG001                     a rule or a finding, by its id
  cudaguard explain 'undefined symbol: _ZN2at4_ops'
                                              an error message, or a part of it
  cudaguard explain train.log                 a file with the output of a program
  python train.py 2>&1 | cudaguard explain -  whatever a program says

exit status: 0 it is known, 1 nothing is known of it, 2 wrong usage
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "about", nargs="*", metavar="TEXT", help="a message, an id, a file, or - for stdin"
    )
    add_format(parser)


def execute(args: Namespace) -> int:
    """Explain, and return the exit status."""
    from cudaguard.core.passing_errors import closest
    from cudaguard.files import read_start
    from cudaguard.files.layout import COLOR, Page
    from cudaguard.files.text import closest_id
    from cudaguard.tools.known import explain, ids

    text, data = " ".join(args.about), b""
    if text == "-" or not (args.about or sys.stdin is None or sys.stdin.isatty()):
        data = sys.stdin.buffer.read()
    elif os.path.isfile(text):
        data = read_start(text, 1 << 30)
    if data:  # whatever a program says, in whatever encoding; PowerShell's files are in UTF-16
        is_utf_16 = data[:2] == b"\xff\xfe" and b"\0" in data
        text = data.decode("utf-16" if is_utf_16 else "utf-8", "replace")
    elif not args.about:
        raise UsageError("the following arguments are required: TEXT")
    whole = (form.format(text) for part, form in _COMPLETE if part.fullmatch(text.strip()))
    finding = explain(text) or next(filter(None, map(explain, whole)), None)
    is_id = _ID.fullmatch(text.strip())
    near = []
    if finding is None:
        near = [(closest_id(text, ids()), "")] if is_id else closest(text)
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
        said = f"no match; closest: {told}" if told else "no match: nothing in it is known"
        note("explain", said, command or "cudaguard doctor")
    return FOUND if finding is None else OK
