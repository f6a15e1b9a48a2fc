"""Show when a program maps which native library, which import brings it, and who initializes CUDA.

The program runs as under ``cudaguard run``, by default with the guard only looking on. What it
prints and how it ends stays as it is: the trace goes to standard error, or to files. It is written
down as things happen, so there is one of a program that crashes as well.
"""

from __future__ import annotations

import sys

from cudaguard.files import write_text
from cudaguard.files.text import printable_data
from cudaguard.tools.common import FORMATS, UsageError, add_verbose, json_text, note, say
from cudaguard.tools.layout import Page
from cudaguard.tools.run import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cudaguard.tools.run.supervise import ProgramEnd

_OF_FILES = "standard output belongs to the program: name a file with -o FILE"

EXAMPLES = """\
examples:
  cudaguard trace train.py --epochs 3         the trace as text, on standard error
  cudaguard trace -v train.py                 with imports of Python code alone
  cudaguard trace -o trace.json train.py      for programs

It ends as the program does; 2: wrong usage; 3: a file cannot be written.
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        action="append",
        default=[],
        help="write the trace to FILE, as its suffix says: .json, else text; may be given "
        "several times",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="write FILE in this format, whatever its suffix (default without FILE: text)",
    )
    parser.add_argument(
        "--mode",
        default="observe",
        help="of the guard meanwhile: observe (default) changes nothing, fix shows what it repairs",
    )
    launch.configure(
        parser,
        "trace",
        "end the program and what it has started after that time, with status 124",
    )
    add_verbose(parser, "show all imports and libraries")


def execute(args: Namespace) -> int:
    """Trace the program and end as it does."""
    from cudaguard.core.record import TRACE_VARIABLE
    from cudaguard.tools.run.record import RunRecord
    from cudaguard.tools.run.supervise import IS_SUPPORTED, run_recorded

    if not IS_SUPPORTED:
        raise UsageError("it is done on Linux only")
    if args.format == "json" and not args.output:
        raise UsageError(f"--format json: {_OF_FILES}")
    if "-" in args.output:
        raise UsageError(f"-o -: {_OF_FILES}")
    found, environment = launch.prepared(args, args.output)
    environment[TRACE_VARIABLE] = "1"
    record = RunRecord()

    def tell(ended: ProgramEnd) -> None:
        from cudaguard.system.shareable import shareable
        from cudaguard.tools.trace.document import document_of, write

        missing = record.problem()
        if missing:
            note("trace", f"libraries may be missing from this trace: {missing}")
        is_whole = args.with_arguments or not args.output
        document = document_of(found, ended, record.folder, with_arguments=is_whole)
        shared = shareable(document)
        if not args.output:
            page = Page(sys.stderr, verbose=args.verbose)
            write(printable_data(document), page)
            say(f"{page}\n", sys.stderr)
        for path in args.output:
            text = json_text(shared)
            suffix = "json" if path.lower().endswith(".json") else "text"
            if (args.format or suffix) == "text":
                page = Page(verbose=args.verbose)
                write(printable_data(shared), page)
                text = str(page)
            write_text(path, f"{text}\n")

    return run_recorded("trace", found.command, environment, record, tell, timeout=args.timeout)
