"""Compares reports, writes how they differ, and returns the exit status."""

from __future__ import annotations

import sys

from cudaguard.files.text import printable_data
from cudaguard.tools.common import FOUND, OK, UsageError, json_text, show
from cudaguard.tools.doctor import messages as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def execute(args: Namespace) -> int:
    """Compare the files of ``--diff``: 0 if they are alike in what matters, 1 if not."""
    from cudaguard.tools.doctor.comparison.groups import compare
    from cudaguard.tools.doctor.comparison.messages import write
    from cudaguard.tools.doctor.comparison.reading import labels, read_report
    from cudaguard.tools.layout import Page

    problem = wording.diff_problem(len(args.diff), args.format)
    if problem:
        raise UsageError(problem)
    try:
        reports = [read_report(path) for path in args.diff]
    except ValueError as error:
        what, command = wording.parted(str(error))
        raise UsageError(what, command=command) from error
    found = compare(reports, labels(args.diff))
    if args.format == "json":
        show(json_text({"tool": "doctor --diff", **found}))
    else:
        page = Page(sys.stdout, verbose=args.verbose)
        write(printable_data(found), page)
        show(str(page))
    return FOUND if len(found["groups"]) > 1 else OK
