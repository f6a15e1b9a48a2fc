"""Find the smallest set and order of imports with which a program fails, and an order that works.

Runs the program, or its imports alone, again and again in child processes, without the guard and
with a time limit. A failure is a crash by a signal, a hang, or an exit status with its Python
error; runs that fail in another way do not count.
"""

from __future__ import annotations

import os
import sys

from cudaguard.files.text import printable_data
from cudaguard.tools.common import (
    BROKEN,
    CANNOT_SAY,
    FORMATS,
    FOUND,
    OK,
    UsageError,
    add_verbose,
    add_with_arguments,
    json_text,
    note,
    save,
    show,
)
from cudaguard.tools.run import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

TIME_LIMIT = 300.0  # seconds for one run
STATUS = {"works": OK, "unexplained": CANNOT_SAY, "by-chance": CANNOT_SAY}

EXAMPLES = """\
examples:
  cudaguard bisect train.py --epochs 1        which imports of train.py make it fail?
  cudaguard bisect -m pkg.train               the same for a module
  cudaguard bisect --timeout 20 train.py      one that hangs
  cudaguard bisect -n 5 train.py              one that fails now and then
  cudaguard bisect --imports decord,torch,cv2
                                              do these imports fail, and in which order not?
  cudaguard bisect -o rule.toml train.py      writes the rule

exit status: 0 nothing fails, 1 found, 2 wrong usage, 3 it could not be run, 125 it fails and no
order and no rule was found that cures it, or it fails by chance
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.usage = (
        "cudaguard bisect [OPTION ...] SCRIPT [ARG ...]\n"
        "       cudaguard bisect [OPTION ...] -m MODULE [ARG ...]\n"
        "       cudaguard bisect [OPTION ...] --imports A,B,C"
    )
    parser.add_argument(
        "--imports", metavar="A,B,C", help="the imports to try, in the order that fails"
    )
    parser.add_argument(
        "--timeout", type=launch.seconds, default=TIME_LIMIT, metavar="S",
        help=f"seconds after which one run is taken for a hang (default: {TIME_LIMIT:.0f})",
    )  # fmt: skip
    parser.add_argument(
        "-n", dest="repeats", type=int, default=1, metavar="N",
        help="runs of an order, all of which must work for it to count (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "-o", dest="outputs", action="append", default=[], metavar="FILE",
        help="also write a file that is not there yet: .toml the rule, anything else all as JSON; "
        "may be given several times",
    )  # fmt: skip
    add_with_arguments(parser)
    add_verbose(parser)
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")


def execute(args: Namespace) -> int:
    """Search, print what was found, and return the exit status."""
    args.program = args.program[args.program[:1] == ["--"] :]
    problem = _problem(args)
    if problem:
        raise UsageError(problem)
    import signal
    import tempfile
    from contextlib import closing

    from cudaguard.errors import ConfigError
    from cudaguard.system.shareable import shareable
    from cudaguard.tools.bisect.messages import write
    from cudaguard.tools.bisect.study import Study
    from cudaguard.tools.common import Scratch
    from cudaguard.tools.layout import Page

    # So that a supervisor or a terminal that ends us does not leave our children behind.
    for ending in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, ending, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # by nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with closing(Scratch("bisect", tempfile.gettempdir())) as scratch:
            study = Study(args, scratch.folder)
            study.search()
    except ConfigError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        what = f"a run could not be started: {error}"
        raise UsageError(what, command="cudaguard doctor", status=BROKEN) from error
    document = study.document()
    for_others = shareable(study.document(with_arguments=args.with_arguments))
    for path in args.outputs:
        if not path.endswith(".toml"):
            save("bisect", path, f"{json_text(for_others)}\n", os.O_CREAT | os.O_EXCL)
        elif document["rule"] is not None:
            save("bisect", path, for_others["rule"]["toml"], os.O_CREAT | os.O_EXCL)
        else:
            note("bisect", f"{path} is not written: there is no rule to write")
    if args.format == "json":
        show(json_text(for_others))
    else:
        page = Page(sys.stdout, verbose=args.verbose)
        write(printable_data(document), page)
        show(str(page))
    if document["guard"] and document["guard"]["rules"]:
        return FOUND  # by a rule, if not by an order
    return STATUS.get(document["verdict"], FOUND)


def _problem(args: Namespace) -> str:
    """Return what is wrong with the arguments, or an empty string."""
    if not hasattr(os, "fork"):
        return "it is not done on Windows"
    if args.imports is None and not args.program:
        return "expected a script, -m MODULE, or --imports A,B,C"
    if args.imports is not None and args.program:
        return "expected a program or --imports, not both; a program's imports are found by running"
    names = args.imports.split(",") if args.imports is not None else ()
    if not all(part.isidentifier() for name in names for part in name.strip().split(".")):
        return f"--imports: got {args.imports!r}, expected module names, as in decord,torch,cv2"
    if args.program == ["-m"]:
        return "-m is followed by nothing"
    if args.program and args.program[0] != "-m" and not os.path.isfile(args.program[0]):
        return f"{args.program[0]}: there is no such file; a command is named by -m MODULE"
    if args.repeats < 1:
        return "-n must be greater than 0"
    for path in args.outputs:
        if os.path.lexists(path):
            return f"-o {path}: the file is there already, and is left alone; give another name"
        if not os.path.isdir(os.path.dirname(path) or "."):
            return f"-o {path}: there is no such folder"
    return ""
