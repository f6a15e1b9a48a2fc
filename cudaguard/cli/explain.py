"""Say what an error message, or the id of a rule or finding, means and what to do about it.

Ends with status 1 if that is not known.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

FORMATS = ("text", "json")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = (
        "examples: cudaguard explain CG001; cudaguard explain 'undefined symbol: _ZN2at4_ops'; "
        "python train.py 2>&1 | cudaguard explain -"
    )
    parser.add_argument(
        "about", nargs="+", metavar="TEXT", help="a message, an id, or - to read from stdin"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")


def execute(args: Namespace) -> int:
    """Explain, and return the exit status."""
    from cudaguard.known import explain

    text = sys.stdin.read() if args.about == ["-"] else " ".join(args.about)
    finding = explain(text)
    if args.format == "json":
        import json

        print(json.dumps({"version": 1, "finding": finding and finding.to_dict()}, indent=2))
    elif finding is not None:
        print(finding)
    else:
        print("cudaguard explain: nothing is known of that message", file=sys.stderr)
    return 0 if finding is not None else 1
