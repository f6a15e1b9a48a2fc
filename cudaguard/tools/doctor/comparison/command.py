"""Compares reports, writes how they differ, and returns the exit status."""

from __future__ import annotations

from cudaguard.files.text import printable_data
from cudaguard.tools.common import BROKEN, FOUND, OK, USAGE, json_text, note, show
from cudaguard.tools.doctor import messages as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


def execute(args: Namespace) -> int:
    """Compare the files of ``--diff``: 0 if they are alike in what matters, 1 if not."""
    import cudaguard
    from cudaguard.tools.doctor.comparison.groups import compare
    from cudaguard.tools.doctor.comparison.messages import as_text
    from cudaguard.tools.doctor.comparison.reading import labels, read_report
    from cudaguard.tools.doctor.writing import save

    problem = wording.diff_problem(len(args.diff), args.format)
    if problem:
        note("doctor", problem)
        return USAGE
    try:
        reports = [read_report(path) for path in args.diff]
    except ValueError as error:
        note("doctor", str(error))
        return USAGE
    found = compare(reports, labels(args.diff))
    if args.format == "json":
        text = json_text({"tool": "doctor --diff", "version": cudaguard.__version__, **found})
    else:
        text = as_text(printable_data(found), verbose=args.verbose)
    if not args.output:
        show(text)
    elif not save(args.output, f"{text}\n"):
        return BROKEN
    return FOUND if len(found["groups"]) > 1 else OK
