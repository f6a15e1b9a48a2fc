"""Tell whether compiled extensions would load, and why not, without loading them.

What an extension names as its prerequisite (torch, for one that links libtorch) is taken for
imported, and looked up in its files. Ends with status 1 if one would not load.
"""

from __future__ import annotations

import os

from cudaguard.files.text import printable
from cudaguard.tools.common import (
    FORMATS,
    FOUND,
    OK,
    USAGE,
    add_format,
    github,
    json_text,
    note,
    show,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from cudaguard.elf.extension_check import ExtensionCheck
    from cudaguard.elf.forecast import Settled

EXAMPLES = """\
examples:
  cudaguard check-extension build/my_ext.so         one file: would it load, and if not, why?
  cudaguard check-extension flash-attn mmcv         all extensions of installed distributions
  cudaguard check-extension ./build                 all in a folder
  cudaguard check-extension --format github ./build annotations for a workflow

exit status: 0 all would load or cannot be judged, 1 one would not, 2 wrong usage
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    import argparse

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "what",
        nargs="+",
        metavar="PATH",
        help="a file, a folder to search, or the name of an installed distribution",
    )
    add_format(parser, FORMATS)


def execute(args: Namespace) -> int:
    """Check, print, and return the exit status."""
    from cudaguard.features.extensions.checks import checked, load_demangler

    files: dict[str, bool] = {}  # file -> True if it was named itself
    for what in args.what:
        found = _files_of(what)
        if found is None:
            expected = "expected a file, a folder, or the name of an installed distribution"
            note("check-extension", f"{what}: {expected}")
            return USAGE
        for file in found:
            files[file] = files.get(file, False) or file == what
    settled: dict[object, Settled] = {}  # most extensions of a package need the same libraries
    checks = [(file, *checked(file, settled)) for file in files]
    if any(check.missing_symbols for _, check, _ in checks) and load_demangler():
        checks = [
            (file, *(checked(file, settled) if check.missing_symbols else (check, given)))
            for file, check, given in checks
        ]
    checks = [one for one in checks if files[one[0]] or _is_told_of(one[0], one[1])]
    if args.format == "json":
        data = [{**check.to_dict(), "assume_imported": list(given)} for _, check, given in checks]
        show(json_text({"tool": "check-extension", "checks": data}))
    elif args.format == "github":
        _annotate(checks)
    else:
        _print(checks, files)
    return FOUND if any(check.ok is False for _, check, _ in checks) else OK


def _is_told_of(file: str, check: ExtensionCheck) -> bool:
    """Return False for a library of a folder that may get what it lacks from who loads it."""
    from cudaguard.features.extensions.checks import CERTAIN_OF_LIBRARIES, is_library

    return check.ok is True or not is_library(file) or check.cause in CERTAIN_OF_LIBRARIES


def _annotate(checks: list[tuple[str, ExtensionCheck, tuple[str, ...]]]) -> None:
    for file, check, _ in checks:
        if not check.ok:
            level = "error" if check.ok is False else "warning"
            text = " ".join(part for part in (check.message, check.remedy) if part)
            show(github(level, text, title=f"cudaguard check-extension: {check.cause}", file=file))


def _print(
    checks: list[tuple[str, ExtensionCheck, tuple[str, ...]]], files: dict[str, bool]
) -> None:
    for file, check, given in checks:
        if check.ok and not files[file]:
            continue
        assumed = f" (once {' and '.join(given)} is imported)" if given else ""
        words = {True: "would load", False: "would NOT load", None: "cannot be judged"}[check.ok]
        show(printable(f"{file}: {words}{assumed}{f' [{check.cause}]' if check.cause else ''}"))
        for text in (check.message, f"remedy: {check.remedy}" if check.remedy else ""):
            if text:
                show(printable(f"    {text}"))
    results = [check.ok for _, check, _ in checks]
    counts = (("would load", True), ("would not load", False), ("cannot be judged", None))
    told = ", ".join(f"{results.count(ok)} {words}" for words, ok in counts if ok in results)
    show(f"{len(results)} checked: {told}" if results else "no extensions or libraries found")


def _files_of(what: str) -> list[str] | None:
    """Return the files that an argument stands for, None if it stands for nothing."""
    from cudaguard.features.extensions.checks import is_extension

    if os.path.isdir(what):
        return sorted(_below(what))
    if os.path.exists(what):
        return [what]
    from cudaguard.system.distributions import metadata_library
    from cudaguard.system.facts import bounded

    try:
        paths = bounded(metadata_library().distribution(what)).files or ()
        found = [str(path.locate()) for path in paths]
    except Exception:  # not installed, or broken metadata
        return None
    return sorted(os.path.normpath(file) for file in found if is_extension(file))


def _below(folder: str) -> Iterator[str]:
    from cudaguard.features.extensions.checks import is_extension, is_library

    for root, folders, names in os.walk(folder):
        # What wheels bundle is loaded by way of what needs it, and may well fail alone.
        folders[:] = [name for name in folders if not name.endswith(".libs")]
        found = (name for name in names if is_extension(name) or is_library(name))
        yield from (os.path.join(root, name) for name in found)
