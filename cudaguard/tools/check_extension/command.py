"""Tell whether compiled extensions would load, and why not, without loading them.

What an extension names as its prerequisite (torch, for one that links libtorch) is taken for
imported, and looked up in its files. Ends with status 1 if one would not load, or has no code for
a GPU that is named.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import NamedTuple

from cudaguard.tools import sarif
from cudaguard.tools.common import (
    BROKEN,
    FOUND,
    OK,
    UsageError,
    add_format,
    add_verbose,
    json_text,
    show,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping

    from cudaguard.elf.extension_check import ExtensionCheck
    from cudaguard.elf.forecast import Settled
    from cudaguard.tools.check_extension.report import OnGpu, Result
    from cudaguard.tools.check_extension.targets import File

    Pair = tuple[int, int]

EXAMPLES = """\
examples:
  cudaguard check-extension build/my_ext.so         one file: would it load, and if not, why?
  cudaguard check-extension flash-attn mmcv         all extensions of installed distributions
  cudaguard check-extension ./build                 all in a folder
  cudaguard check-extension dist/my_ext-1.0-cp311-cp311-linux_x86_64.whl
                                                    all in a wheel, before it is installed
  cudaguard check-extension --gpu sm_90 flash-attn  and have they code for an H100?
  cudaguard check-extension --torch ../other/venv my_ext.so
                                                    with the torch of another environment
  cudaguard check-extension --format github ./build annotations for a workflow

exit status: 0 all would load or cannot be judged, 1 one would not, or has no code for a GPU that
is named, 2 wrong usage
"""


class _Wanted(NamedTuple):
    """What is asked for.

    Args:
        given: Modules that are taken for imported.
        gpus: Compute capabilities.
        gpu_code: True if a library is reported for its GPU code alone.
    """

    given: tuple[str, ...]
    gpus: list[Pair]
    gpu_code: bool


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "what",
        nargs="+",
        metavar="PATH",
        help="a file, a folder to search, a wheel, or the name of an installed distribution",
    )
    parser.add_argument(
        "--gpu", action="append", default=[], metavar="SM",
        help="tell also whether there is code for this GPU, as in sm_90 or 9.0; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--torch", metavar="PATH",
        help="judge with this torch, not the installed one: its folder, a site-packages folder, an "
        "environment, its interpreter, or a wheel",
    )  # fmt: skip
    add_verbose(parser, "show each file, each missing symbol, and long lists whole")
    add_format(parser)


def execute(args: Namespace) -> int:
    """Check, print, and return the exit status."""
    import signal

    from cudaguard.features.gpu_architectures.policy.gpu_code import device_of
    from cudaguard.tools.check_extension import messages
    from cudaguard.tools.check_extension.targets import Targets, WrongUsageError

    gpus = []
    for name in args.gpu:
        device = device_of(name)
        if device is None:
            raise UsageError(messages.BAD_GPU.format(name))
        gpus.append(device)
    # So that what was unpacked goes when a supervisor ends us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ExitStack() as stack:
        targets = Targets(stack)
        try:
            given = ("torch",) if args.torch else ()
            if args.torch:
                from cudaguard.system.torch_build import take_for_installed

                take_for_installed(targets.torch(args.torch))
            files: dict[str, File] = {}
            for what in args.what:
                for file in targets.of(what):
                    known = files.get(file.path, file)
                    is_named = file.is_named or known.is_named
                    files[file.path] = file._replace(is_named=is_named)
        except WrongUsageError as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise UsageError(str(error), status=BROKEN) from error
        wanted = _Wanted(given, list(dict.fromkeys(gpus)), args.verbose or bool(gpus))
        results = _judged(files.values(), wanted, targets.shown)
    _show(results, args.format, args.given, verbose=args.verbose)
    return FOUND if any(one.is_wrong for one in results) else OK


def _show(results: list[Result], form: str, given: list[str], *, verbose: bool) -> None:
    from cudaguard.tools.check_extension import report
    from cudaguard.tools.layout import Page

    if form in ("json", sarif.FORMAT):
        document = report.data(results)
        as_sarif = form == sarif.FORMAT
        show(sarif.of_extensions(document["checks"]) if as_sarif else json_text(document))
        return
    if form == "text":
        page = Page(sys.stdout, verbose=verbose)
        report.write(results, page)
        if page.is_cut:
            import shlex

            page.labeled("run", shlex.join(("cudaguard", given[0], "--verbose", *given[1:])), 0)
        show(str(page))
        return
    for line in report.workflow_commands(results):
        show(line)


def _judged(files: Iterable[File], wanted: _Wanted, shown: Mapping[str, str]) -> list[Result]:
    """Return what is reported of files.

    Args:
        files: The files.
        wanted: What is asked for.
        shown: Folder -> what is shown in its place.
    """
    from cudaguard.features.extensions.checks import checked, load_demangler
    from cudaguard.tools.check_extension.report import Result

    given, gpus = wanted.given, wanted.gpus
    settled: dict[object, Settled] = {}  # most extensions of a package need the same libraries
    found = [
        (file, *((file.known, ()) if file.known else checked(file.path, settled, given)))
        for file in files
    ]
    if any(check.missing_symbols for _, check, _ in found) and load_demangler():
        found = [
            (file, *(checked(file.path, settled, given) if check.missing_symbols else (check, its)))
            for file, check, its in found
        ]
    results = []
    for file, check, its in found:
        has = _on_gpus(check, gpus) if check.ok is not None and not file.known else ((), ())
        is_open = not file.is_named and not _is_told_of(check)
        if is_open and not (wanted.gpu_code and has[0]):
            continue
        remedy = _gpu_remedy(has[1], gpus)
        told = _with_names(check.replace(ok=None) if is_open else check, shown)
        results.append(
            Result(_shown(file.path, shown), told, its, file.is_named, *has, remedy, is_open)
        )
    return results


def _is_told_of(check: ExtensionCheck) -> bool:
    """Return False for a library of a folder that may get what it lacks from who loads it."""
    from cudaguard.features.extensions.checks import CERTAIN_OF_LIBRARIES, is_library

    return check.ok is True or not is_library(check.path) or check.cause in CERTAIN_OF_LIBRARIES


def _on_gpus(check: ExtensionCheck, gpus: list[Pair]) -> tuple[tuple[str, ...], tuple[OnGpu, ...]]:
    """Return what a file has code for, and what becomes of it on the GPUs."""
    from cudaguard.elf.fat_binaries import gpu_code
    from cudaguard.features.gpu_architectures.messages.gpu_code import in_words
    from cudaguard.features.gpu_architectures.policy.architectures import architecture
    from cudaguard.features.gpu_architectures.policy.gpu_code import cuda_of, verdict
    from cudaguard.tools.check_extension.report import OnGpu

    try:
        code = gpu_code(check.path)
    except (OSError, OverflowError, ValueError):  # then there is more wrong, which is told
        return (), ()
    if not code.parts and not code.has_more:
        return (), ()
    answers = []
    for device in gpus:
        found = verdict(device, code)
        cuda = cuda_of(code.ptx[found.by]) if found.by in code.ptx else None
        words = in_words(device, code, found, cuda)
        answers.append(OnGpu(f"sm_{architecture(device)}", found.ok, found.by, words))
    return code.architectures, tuple(answers)


def _gpu_remedy(answers: tuple[OnGpu, ...], gpus: list[Pair]) -> str:
    from cudaguard.features.gpu_architectures.messages.gpu_code import remedy

    lacking = [device for device, one in zip(gpus, answers) if one.ok is False]
    return remedy("it", lacking) if lacking else ""


def _with_names(check: ExtensionCheck, shown: Mapping[str, str]) -> ExtensionCheck:
    """Return a check in which a wheel is named, and not the folder that it was unpacked to."""
    return check.replace(
        path=os.path.abspath(_shown(check.path, shown)),
        message=_shown(check.message, shown),
        remedy=_shown(check.remedy, shown),
    )


def _shown(text: str, shown: Mapping[str, str]) -> str:
    for folder, wheel in shown.items():
        text = text.replace(folder, wheel)
    return text
