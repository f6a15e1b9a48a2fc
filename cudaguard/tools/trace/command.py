"""Show when a program maps which native library, which import brings it, and who initializes CUDA.

The program runs as under ``cudaguard run``, by default with the guard only looking on. What it
prints and how it ends stays as it is: the trace goes to standard error, or to files. It is written
down as things happen, so there is one of a program that crashes as well.
"""

from __future__ import annotations

import os
import sys

from cudaguard.files import LARGEST, open_to_write, read_bytes, write_text
from cudaguard.files.text import printable, printable_data
from cudaguard.tools.common import (
    BROKEN,
    FOUND,
    OK,
    PICTURES,
    SCHEMA,
    SUFFIXES,
    UsageError,
    add_verbose,
    json_text,
    note,
    on_disk,
    say,
    show,
)
from cudaguard.tools.layout import Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence
    from typing import Any

_WITH_VALUE = ("--mode", "--format", "-o", "--output", "--only", "--timeout", "--show")
_FLAGS = ("-h", "--help", "--diff", "--verbose")
OF_FILES = "standard output belongs to the program: name a file with -o FILE"


EXAMPLES = """\
examples:
  cudaguard trace train.py --epochs 3         the trace as text, on standard error
  cudaguard trace -o trace.html train.py      a picture for the browser
  cudaguard trace -o here.json train.py       to be shown or compared later
  cudaguard trace --show here.json --only native
  cudaguard trace --diff works.json crashes.json

It ends as the program does; --diff: 0 no difference, 1 some; 2: wrong usage; 3: a file cannot be
read or written.
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = (
        "cudaguard trace [OPTION ...] COMMAND [ARG ...]\n"
        "       cudaguard trace [OPTION ...] [OPTION OF PYTHON ...] SCRIPT [ARG ...]\n"
        "       cudaguard trace [OPTION ...] [OPTION OF PYTHON ...] -m MODULE [ARG ...]\n"
        "       cudaguard trace [OPTION ...] [OPTION OF PYTHON ...] -c CODE [ARG ...]\n"
        "       cudaguard trace --show TRACE [--format F] [-o FILE]\n"
        "       cudaguard trace --diff A B [--format text|json] [-o FILE]"
    )
    parser.epilog = EXAMPLES
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        action="append",
        default=[],
        help="write the trace to FILE, as its suffix says: .json, .svg, .html, else text; may be "
        "given several times",
    )
    parser.add_argument(
        "--format",
        choices=PICTURES,
        help="write FILE in this format, whatever its suffix (default without FILE: text)",
    )
    parser.add_argument(
        "--only",
        choices=["native"],
        help="leave out imports in which no library was mapped and nothing happened",
    )
    parser.add_argument(
        "--mode",
        default="observe",
        help="of the guard meanwhile: observe (default) changes nothing, fix shows what it repairs",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        default=0,
        type=_seconds,
        help="end the program and what it has started after that time, with status 124",
    )
    add_verbose(parser, is_short=False)
    parser.add_argument("--show", metavar="TRACE", help="show a trace that was written as JSON")
    parser.add_argument(
        "--diff",
        nargs=2,
        metavar=("A", "B"),
        help="compare two traces that were written as JSON; status 1 if they differ",
    )


def _seconds(text: str) -> float:
    from cudaguard.tools.run.command import _seconds as seconds

    return seconds(text)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (our own options, what is handed to Python): see `tools.run.command.split`."""
    own: list[str] = []
    rest = list(arguments)
    while rest:
        if rest[0] == "--diff" or "--diff" in own:
            return [*own, *rest], []
        if rest[0] in _WITH_VALUE:
            own += rest[:2]
            del rest[:2]
        elif rest[0] in _FLAGS or (rest[0].startswith(("-o", "--")) and rest[0][2:]):
            own.append(rest.pop(0))
        else:
            break
    return own, rest


def execute(args: Namespace) -> int:
    """Trace the program and end as it does; or show or compare traces."""
    from cudaguard.errors import ConfigError

    try:
        if args.diff:
            return _compare(args)
        if args.show:
            return _show(args)
        return _trace(args)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(str(error), status=BROKEN) from error
    except (ConfigError, ValueError) as error:
        raise UsageError(str(error)) from error


def _trace(args: Namespace) -> int:
    from cudaguard.core.record import DUMP_VARIABLE, FOLDER_VARIABLE, TRACE_VARIABLE
    from cudaguard.tools.run import supervise
    from cudaguard.tools.run.command import guarded_environment, interpreter_options
    from cudaguard.tools.run.ending import InterruptedReportError, end_as, flush, interruptible
    from cudaguard.tools.run.launch import launch
    from cudaguard.tools.run.record import RunRecord

    found, problem = launch(args.program, interpreter_options(), os.environ)
    if not supervise.IS_SUPPORTED:
        problem = "it is done on Linux only"
    elif args.format not in (None, "text") and not args.output:
        problem = f"--format {args.format}: {OF_FILES}"
    elif "-" in args.output:
        problem = f"-o -: {OF_FILES}"
    if problem:
        raise ValueError(problem)
    environment = guarded_environment(args.mode, os.environ, found.prefix)
    for path in args.output:
        os.close(open_to_write(path))  # now, not when hours have been spent
    record = RunRecord()
    environment.pop(DUMP_VARIABLE, None)  # of a run around this one
    environment.update({FOLDER_VARIABLE: record.folder, TRACE_VARIABLE: "1"})
    dump_signal = supervise.DUMP_SIGNAL if args.timeout else 0
    if dump_signal:
        environment[DUMP_VARIABLE] = str(dump_signal)
    flush()
    supervisor = supervise.Supervisor(
        found.command, timeout=args.timeout, dump_signal=dump_signal, kept=record.lock
    )
    ended = supervisor.run(environment)
    missing = record.problem()
    if missing:
        note("trace", f"libraries may be missing from this trace: {missing}")
    try:
        from cudaguard.tools.trace.document import document_of

        with interruptible():
            _write(document_of(found, ended, record.folder), args)
    except InterruptedReportError as error:
        note("trace", f"no trace: {error} came while it was written")
    except Exception as error:  # whatever it is, the program's end is what counts
        note("trace", f"no trace: {type(error).__name__}: {error}")
    finally:
        record.remove()
    return end_as(ended)


def _write(document: dict[str, Any], args: Namespace) -> None:
    if args.only:
        from cudaguard.tools.trace.timeline import native_only

        document["processes"] = [native_only(process) for process in document["processes"]]
    if not args.output:
        stream = sys.stdout if args.show else sys.stderr
        page = Page(stream, verbose=args.verbose)
        text = _rendered(document, args.format or "text", page)
        if args.show:
            show(text)
        else:
            say(f"{text}\n", stream)
    for path in args.output:
        suffix = os.path.splitext(path)[1].lower()
        form = args.format or SUFFIXES.get(suffix, "text")
        text = _rendered(document, form, Page(verbose=args.verbose))
        write_text(path, text + "\n")


def _rendered(document: dict[str, Any], form: str, page: Page) -> str:
    from cudaguard.tools.trace.timeline import native_only, rows_of

    if form == "json":
        return json_text(document)
    document = printable_data(document)
    is_picture = form in ("svg", "html")
    processes = [
        {**process, "rows": rows_of(native_only(process) if is_picture else process)}
        for process in document["processes"]
    ]
    document = {**document, "processes": processes}
    if form == "text":
        from cudaguard.tools.trace.messages import write

        write(document, page)
        return str(page)
    if form == "svg":
        from cudaguard.tools.trace.picture import as_svg

        return as_svg(document)
    from cudaguard.tools.trace.page import as_html

    return as_html(document)


def _show(args: Namespace) -> int:
    _write(_read(args.show), args)
    return OK


def _compare(args: Namespace) -> int:
    import cudaguard
    from cudaguard.tools.trace.diff import difference, differs

    if args.format in ("svg", "html"):
        raise ValueError(f"--format {args.format}: differences are told as text or json")
    first, second = args.diff
    found = difference(_read(first), _read(second))
    path = args.output[-1] if args.output else ""
    is_json = args.format == "json" or (not args.format and path.lower().endswith(".json"))
    if is_json:
        said = {"tool": "trace --diff", "version": cudaguard.__version__}
        text = json_text({**said, "files": [first, second], **found})
    else:
        from cudaguard.tools.trace.diff_messages import write

        page = Page(None if path else sys.stdout, verbose=args.verbose)
        write(printable_data(found), (printable(first), printable(second)), page)
        text = str(page)
    if path:
        write_text(path, text + "\n")
    else:
        show(text)
    return FOUND if differs(found) else OK


def _read(path: str) -> dict[str, Any]:
    """Return a trace that was written as JSON, without the number of its schema.

    Raises:
        OSError: It cannot be read.
        ValueError: It is none.
    """
    import json

    from cudaguard import tools
    from cudaguard.tools.trace.shape import misfit

    def refused(constant: str) -> None:
        raise ValueError(f"{constant} is no number")

    try:
        document = json.loads(read_bytes(path, LARGEST), parse_constant=refused)
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON: {error}") from None
    if not isinstance(document, dict) or document.get("tool") != "trace":
        raise ValueError(f"{path}: no trace; write one with `cudaguard trace -o FILE.json ...`")
    if document.get("schema") != SCHEMA:
        raise ValueError(f"{path}: written by another release of cudaguard")
    schema = on_disk(os.path.join(tools.__path__[0], "schema", "trace.json"))
    problem = misfit(document, json.loads(read_bytes(schema, LARGEST)))
    if problem:
        raise ValueError(f"{path}: damaged trace: {problem}; write it anew")
    del document["schema"]
    return document
