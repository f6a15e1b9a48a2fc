"""Tell whether compiled extensions would load, and why not, without loading them.

What an extension names as its prerequisite (torch, for one that links libtorch) is taken for
imported, and looked up in its files. Ends with status 1 if one would not load, or has no code for
a GPU that is named.
"""

from __future__ import annotations

import os
import sys

from cudaguard.tools.check_extension import messages
from cudaguard.tools.check_extension.messages import OnGpu, Result
from cudaguard.tools.common import (
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

    Pair = tuple[int, int]

EXAMPLES = """\
examples:
  cudaguard check-extension build/my_ext.so         one file: would it load, and if not, why?
  cudaguard check-extension flash-attn mmcv         all extensions of installed distributions
  cudaguard check-extension ./build                 all in a folder
  cudaguard check-extension --gpu sm_90 flash-attn  and have they code for an H100?
  cudaguard check-extension --torch ../other/venv my_ext.so
                                                    with the torch of another environment

exit status: 0 all would load or cannot be judged, 1 one would not, or has no code for a GPU that
is named, 2 wrong usage
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "what",
        nargs="+",
        metavar="PATH",
        help="a file, a folder to search, or the name of an installed distribution",
    )
    parser.add_argument(
        "--gpu", action="append", default=[], metavar="SM",
        help="tell also whether there is code for this GPU, as in sm_90 or 9.0; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--torch", metavar="PATH",
        help="judge with this torch, not the installed one: its folder, a site-packages folder, an "
        "environment, or its interpreter",
    )  # fmt: skip
    add_verbose(parser, "show each file, each missing symbol, and long lists whole")
    add_format(parser)


def execute(args: Namespace) -> int:
    """Check, print, and return the exit status."""
    from cudaguard.features.gpu_architectures.policy import device_of
    from cudaguard.system.torch_build import take_for_installed
    from cudaguard.tools.check_extension.targets import files_of, torch_at

    gpus = []
    for name in args.gpu:
        device = device_of(name)
        if device is None:
            raise UsageError(messages.BAD_GPU.format(name))
        gpus.append(device)
    if args.torch:
        take_for_installed(torch_at(args.torch))
    files: dict[str, bool] = {}
    for what in args.what:
        for path, is_named in files_of(what):
            files[path] = files.get(path, False) or is_named
    results = _judged(
        files,
        ("torch",) if args.torch else (),
        list(dict.fromkeys(gpus)),
        gpu_code=args.verbose or bool(gpus),
    )
    if args.format == "json":
        show(json_text(messages.data(results)))
    else:
        _show(results, args)
    return FOUND if any(one.is_wrong for one in results) else OK


def _show(results: list[Result], args: Namespace) -> None:
    from cudaguard.tools.layout import Page

    page = Page(sys.stdout, verbose=args.verbose)
    messages.write(results, page)
    if page.is_cut:
        import shlex

        command, *rest = args.given
        page.labeled("run", shlex.join(("cudaguard", command, "--verbose", *rest)), 0)
    show(str(page))


def _judged(
    files: Mapping[str, bool], given: tuple[str, ...], gpus: list[Pair], *, gpu_code: bool
) -> list[Result]:
    """Return what is reported of files.

    Args:
        files: Path -> True if it was named itself.
        given: Modules that are taken for imported.
        gpus: Compute capabilities.
        gpu_code: True if a library is reported for its GPU code alone.
    """
    results = []
    for path, (check, its) in _checked(files, given).items():
        architectures, answers = _on_gpus(path, gpus) if check.ok is not None else ((), ())
        is_open = not files[path] and not _is_reported(check)
        if is_open and not (gpu_code and architectures):
            continue
        results.append(
            Result(
                path,
                check.replace(path=os.path.abspath(path), ok=None if is_open else check.ok),
                its,
                files[path],
                architectures,
                answers,
                _gpu_remedy(answers, gpus),
                is_open,
            )
        )
    return results


def _checked(
    paths: Iterable[str], given: tuple[str, ...]
) -> dict[str, tuple[ExtensionCheck, tuple[str, ...]]]:
    """Return path -> its check, and the modules that it took for imported."""
    from cudaguard.features.extensions.checks import checked, load_demangler

    settled: dict[object, Settled] = {}  # most extensions of a package need the same libraries
    found = {path: checked(path, settled, given) for path in paths}
    unnamed = [path for path, (check, _) in found.items() if check.missing_symbols]
    if unnamed and load_demangler():
        found.update((path, checked(path, settled, given)) for path in unnamed)
    return found


def _is_reported(check: ExtensionCheck) -> bool:
    """Return False for a library of a folder that may get what it lacks from who loads it."""
    from cudaguard.features.extensions.checks import CERTAIN_OF_LIBRARIES, is_library

    return check.ok is True or not is_library(check.path) or check.cause in CERTAIN_OF_LIBRARIES


def _on_gpus(path: str, gpus: list[Pair]) -> tuple[tuple[str, ...], tuple[OnGpu, ...]]:
    """Return what a file has code for, and what becomes of it on the GPUs."""
    from cudaguard.elf.fat_binaries import gpu_code
    from cudaguard.features.gpu_architectures.messages import in_words
    from cudaguard.features.gpu_architectures.policy import architecture, cuda_of, verdict_of_code

    try:
        code = gpu_code(path)
    except (OSError, OverflowError, ValueError):  # then there is more wrong, which is told
        return (), ()
    if not code.parts and not code.has_more:
        return (), ()
    answers = []
    for device in gpus:
        found = verdict_of_code(device, code)
        cuda = cuda_of(code.ptx[found.by]) if found.by in code.ptx else None
        words = in_words(device, code, found, cuda)
        answers.append(OnGpu(f"sm_{architecture(device)}", found.ok, found.by, words))
    return code.architectures, tuple(answers)


def _gpu_remedy(answers: tuple[OnGpu, ...], gpus: list[Pair]) -> str:
    from cudaguard.features.gpu_architectures.messages import build_remedy

    lacking = [device for device, one in zip(gpus, answers) if one.ok is False]
    return build_remedy("it", lacking) if lacking else ""
