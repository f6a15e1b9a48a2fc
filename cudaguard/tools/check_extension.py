"""Tell whether compiled extensions would load, and why not, without loading them.

What an extension names as its prerequisite (torch, for one that links libtorch) is taken for
imported, and looked up in its files. Ends with status 1 if one would not load, or has no code for
a GPU that is named.
"""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from typing import NamedTuple

from cudaguard.elf.library_facts import GpuCode, distributions_of, gpu_code
from cudaguard.features.extensions import checks as extensions
from cudaguard.features.gpu_architectures.findings import build_remedy, in_words
from cudaguard.features.gpu_architectures.policy import architecture, code_for, device_of
from cudaguard.files.layout import Page
from cudaguard.files.text import printable
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.packages import Site, installed, key_of, listed_files
from cudaguard.tools.common import FOUND, OK, UsageError, add_format, json_text, show

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

    from cudaguard.elf.forecast import ExtensionCheck, Settled

    Pair = tuple[int, int]

_SHOWN = 3  # symbols
_MOST_LINES = 3  # healthy files that are named one by one
_INDENT = 4
# Of files, the worst first, and the style of each.
_WRONG, _OPEN, _FINE = range(3)
_STYLES = ("red", "yellow", "green")
_WORDS = {True: "would load", False: "would NOT load", None: "cannot be judged"}


class OnGpu(NamedTuple):
    """Verdict on a file's GPU code for one GPU."""

    gpu: str  # as in sm_90
    ok: bool | None  # None where it cannot be said
    by: str  # the architecture whose code runs, as in sm_80; empty if none does
    message: str  # the same in words


class Result(NamedTuple):
    """A file that was judged."""

    name: str  # as it was named, or found below a folder that was
    check: ExtensionCheck
    given: tuple[str, ...]  # modules that were taken for imported
    is_named: bool  # itself
    architectures: tuple[str, ...]  # what it has GPU code for
    gpus: tuple[OnGpu, ...]  # what becomes of that on the GPUs that were asked for
    gpu_remedy: str  # what to do where it has no code for one
    # A library that may get what it lacks from who loads it: only its GPU code counts
    is_open: bool

    @property
    def lacks_gpus(self) -> tuple[OnGpu, ...]:
        """The GPUs that it has no code for."""
        return tuple(gpu for gpu in self.gpus if gpu.ok is False)

    @property
    def place(self) -> int:
        """Sort key: faults first, then what cannot be judged, what is fine last."""
        if self.check.ok is False or self.lacks_gpus:
            return _WRONG
        return _FINE if self.check.ok or self.is_open else _OPEN


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "what", nargs="+", metavar="PATH",
        help="a file, a folder to search, or the name of an installed distribution",
    )  # fmt: skip
    parser.add_argument(
        "--gpu", action="append", default=[], metavar="SM",
        help="tell also whether there is code for this GPU, as in sm_90 or 9.0; may be repeated",
    )  # fmt: skip
    add_format(parser, "show each file, each missing symbol, and long lists whole")


def execute(args: Namespace) -> int:
    """Check, print, and return the exit status."""
    gpus = []
    for name in args.gpu:
        if (device := device_of(name)) is None:
            expected = "expected a compute capability such as sm_90 or 9.0"
            raise UsageError(f"--gpu: got {name!r}, {expected}")
        gpus.append(device)
    files: dict[str, bool] = {}
    for what in args.what:
        for path, is_named in _files_of(what):
            files[path] = files.get(path, False) or is_named
    results = _judged(files, list(dict.fromkeys(gpus)), gpu_code=args.verbose or bool(gpus))
    if args.format == "json":
        checks = [
            {
                **result.check.to_dict(),
                "assume_imported": list(result.given),
                "architectures": list(result.architectures),
                "gpus": [{**gpu._asdict(), "by": gpu.by or None} for gpu in result.gpus],
            }
            for result in results
        ]
        show(json_text({"tool": "check-extension", "checks": checks}))
    else:
        page = Page(sys.stdout, verbose=args.verbose)
        _write(results, page)
        if page.is_cut:
            command, *rest = args.given
            page.labeled("run", shlex.join(("cudaguard", command, "--verbose", *rest)), 0)
        show(str(page))
    return FOUND if any(result.place == _WRONG for result in results) else OK


def _judged(files: Mapping[str, bool], gpus: list[Pair], *, gpu_code: bool) -> list[Result]:
    """Return what is reported of files, given with True for those that were named themselves.

    With `gpu_code`, a library is reported for its GPU code alone.
    """
    site, owners = Site(), distributions_of(files)

    def judged(
        path: str, settled: dict[object, Settled] | None
    ) -> tuple[ExtensionCheck, tuple[str, ...]]:
        owner = "".join(owners.get(path, ())[:1]).partition(" ")[0]
        return extensions.checked(path, settled, partial(extensions.brought, site, owner))

    settled: dict[object, Settled] = {}  # most extensions of a package need the same libraries
    found = {path: judged(path, settled) for path in files}
    checks = {path: check for path, (check, _) in found.items()}
    failed = [p for p, one in checks.items() if one.missing_symbols or one.missing_libraries]
    if failed:  # not before: what is loaded here counts as loaded
        extensions.load_demangler()
        found.update((path, judged(path, None)) for path in failed)
    results = []
    for path, (check, given) in found.items():
        architectures, answers = _on_gpus(path, gpus) if check.ok is not None else ((), ())
        # A library of a folder may get what it lacks from who loads it.
        may_get = check.ok is not True and check.cause not in extensions.CERTAIN_OF_LIBRARIES
        is_open = may_get and not files[path] and extensions.is_library(path)
        if is_open and not (gpu_code and architectures):
            continue
        lacking = [device for device, answer in zip(gpus, answers) if answer.ok is False]
        said = check.replace(path=os.path.abspath(path), ok=None if is_open else check.ok)
        remedy = build_remedy("it", lacking) if lacking else ""
        of_gpus = architectures, answers, remedy
        results.append(Result(path, said, given, files[path], *of_gpus, is_open))
    return results


def _on_gpus(path: str, gpus: list[Pair]) -> tuple[tuple[str, ...], tuple[OnGpu, ...]]:
    """Return what a file has code for, and what becomes of it on the GPUs."""
    try:
        code = gpu_code(path)
    except (OSError, OverflowError, ValueError) as error:
        words = f"unknown, because its GPU code cannot be read: {error}"
        names = [f"sm_{architecture(device)}" for device in gpus]
        return (), tuple(OnGpu(name, None, "", f"{name}: {words}") for name in names)
    if code == GpuCode():
        return (), ()
    answers = []
    for device in gpus:
        by = code_for(device, code)
        ok = None if by is None else bool(by)
        answers.append(OnGpu(f"sm_{architecture(device)}", ok, by or "", in_words(device, code)))
    return code.architectures, tuple(answers)


def _files_of(what: str) -> list[tuple[str, bool]]:
    """Return the files that an argument stands for, and True for one that is named itself.

    A path wins over a name. A `UsageError` says that it stands for nothing.
    """
    if not what:  # as of a shell's variable that is not set
        raise UsageError("PATH: got an empty text")
    if os.path.isdir(what):
        found = [os.path.join(root, name) for root, _, names in os.walk(what) for name in names]
    elif os.path.exists(what):
        return [(what, True)]
    else:
        dist = next((one for one in installed().found if one.key == key_of(what)), None)
        if dist is None:  # or its metadata are broken
            expected = "expected a file, a folder, or the name of an installed distribution"
            raise UsageError(f"{what}: {expected}")
        listed = (os.path.join(dist.folder, path) for path, *_ in listed_files(dist))
        found = [os.path.normpath(path) for path in listed]
    # What wheels bundle is loaded by way of what needs it, and may well fail alone.
    bundled = f".libs{os.sep}"
    return [
        (path, False)
        for path in sorted(found)
        if bundled not in path and (extensions.is_extension(path) or extensions.is_library(path))
    ]


def _write(results: Sequence[Result], page: Page) -> None:
    """Write them, faults first: those in order are only counted where there are many."""
    is_short = len(results) <= _MOST_LINES
    for result in sorted(results, key=lambda result: result.place):
        if result.place == _FINE and not page.verbose and not (result.is_named and is_short):
            continue
        page.add(printable(_headline(result)), style=_STYLES[result.place])
        if not result.is_open:
            page.labeled("because", printable(result.check.message), _INDENT)
            symbols = result.check.missing_symbols  # the first few stand in most messages
            if page.verbose:
                for name, readable in symbols:
                    mangled = f" ({name})" if name != readable else ""
                    page.labeled("missing symbol", printable(f"{readable}{mangled}"), _INDENT)
            elif symbols and (result.check.missing_libraries or len(symbols) > _SHOWN):
                whose = ", with those of missing libraries" * bool(result.check.missing_libraries)
                listed = page.listed([printable(readable) for _, readable in symbols], _SHOWN)
                page.add(f"missing symbols{whose}: {listed}", _INDENT)
            page.labeled("fix", printable(result.check.remedy), _INDENT)
        if page.verbose and not result.gpus:
            page.add(f"GPU code: {' '.join(result.architectures) or 'none'}", _INDENT)
        for gpu in result.gpus:
            page.add(printable(gpu.message), _INDENT)
        page.labeled("fix", printable(result.gpu_remedy), _INDENT)
    style = _STYLES[min((result.place for result in results), default=_OPEN)]
    page.add(_summary(results), style=style)


def _headline(result: Result) -> str:
    is_assumed = result.given and result.check.cause != "torch-not-imported"
    assumed = f" (once {' and '.join(result.given)} is imported)" if is_assumed else ""
    cause = f" [{result.check.cause}]" if result.check.cause else ""
    lacks = ", ".join(gpu.gpu for gpu in result.lacks_gpus)
    if result.is_open:
        return f"{result.name}: has {f'NO code for {lacks}' if lacks else 'GPU code'}"
    lacks = f", and has NO code for {lacks}" if lacks else ""
    return f"{result.name}: {_WORDS[result.check.ok]}{assumed}{cause}{lacks}"


def _summary(results: Sequence[Result]) -> str:
    if not results:
        return "no extensions or libraries found"
    loads = [result.check.ok for result in results if not result.is_open]
    counts = (("would load", True), ("would not load", False), ("cannot be judged", None))
    parts = [f"{loads.count(ok)} {words}" for words, ok in counts if ok in loads]
    is_open = sum(result.is_open for result in results)
    parts += [f"{is_open} for GPU code only"] if is_open else []
    for gpu in dict.fromkeys(gpu.gpu for result in results for gpu in result.gpus):
        lacking = sum(gpu == lack.gpu for result in results for lack in result.lacks_gpus)
        parts += [f"{lacking} with no code for {gpu}"] if lacking else []
    return f"{len(results)} checked: {', '.join(parts)}"
