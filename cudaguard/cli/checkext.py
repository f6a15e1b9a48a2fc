"""Tell whether compiled extensions would load, and why not, without loading them.

What an extension names as its prerequisite (torch, for one that links libtorch) is taken for
imported, and looked up in its files. Ends with status 1 if one would not load.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator

    from cudaguard.extensions import ExtensionCheck

FORMATS = ("text", "json")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = "example: cudaguard check-ext build/my_ext.so flash-attn ./site-packages/mmcv"
    parser.add_argument(
        "what",
        nargs="+",
        metavar="PATH",
        help="a file, a folder to search, or the name of an installed distribution",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")


def execute(args: Namespace) -> int:
    """Check, print, and return the exit status."""
    files: dict[str, bool] = {}  # file -> was it named itself?
    for what in args.what:
        found = _files_of(what)
        if found is None:
            print(
                f"cudaguard check-ext: {what}: expected a file, a folder, or the name of an "
                "installed distribution",
                file=sys.stderr,
            )
            return 2
        for file in found:
            files[file] = files.get(file, False) or file == what
    checks = [(file, *_checked(file)) for file in files]
    if any(check.missing_symbols for _, check, _ in checks) and _can_demangle():
        checks = [
            (file, *(_checked(file) if check.missing_symbols else (check, given)))
            for file, check, given in checks
        ]
    if args.format == "json":
        import json

        data = [{**check.to_dict(), "given": list(given)} for _, check, given in checks]
        print(json.dumps({"version": 1, "checks": data}, indent=2))
    else:
        _print(checks, files)
    return 1 if any(check.ok is False for _, check, _ in checks) else 0


def _print(
    checks: list[tuple[str, ExtensionCheck, tuple[str, ...]]], files: dict[str, bool]
) -> None:
    for file, check, given in checks:
        if check.ok and not files[file]:
            continue
        assumed = f" (once {' and '.join(given)} is imported)" if given else ""
        words = {True: "would load", False: "would NOT load", None: "cannot be judged"}[check.ok]
        print(f"{file}: {words}{assumed}{f' [{check.cause}]' if check.cause else ''}")
        for text in (check.message, f"remedy: {check.remedy}" if check.remedy else ""):
            if text:
                print(f"    {text}")
    results = [check.ok for _, check, _ in checks]
    counts = (("would load", True), ("would not load", False), ("cannot be judged", None))
    told = ", ".join(f"{results.count(ok)} {words}" for words, ok in counts if ok in results)
    print(f"{len(results)} checked: {told}" if results else "no extensions found")


def _can_demangle() -> bool:
    """Load the C++ runtime, which has the function that makes names readable.

    This process is ours; in a program's own nothing is loaded for it.
    """
    import ctypes

    try:
        ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return False
    return True


def _files_of(what: str) -> list[str] | None:
    """Return the files that an argument stands for, None if it stands for nothing."""
    if os.path.isdir(what):
        return sorted(_below(what))
    if os.path.exists(what):
        return [what]
    try:
        import importlib_metadata as metadata
    except ImportError:
        from importlib import metadata  # type: ignore[no-redef]  # same functions
    try:
        paths = metadata.files(what) or ()
        found = [str(path.locate()) for path in paths]
    except Exception:  # not installed, or broken metadata
        return None
    return sorted(os.path.normpath(file) for file in found if _is_extension(file))


def _below(folder: str) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        # What wheels bundle is loaded by way of what needs it, and may well fail alone.
        folders[:] = [name for name in folders if not name.endswith(".libs")]
        yield from (os.path.join(root, name) for name in names if _is_extension(name))


def _is_extension(file: str) -> bool:
    """Is that a file which an import of this Python may load, judged by its name?"""
    from cudaguard.policy.extensions import built_for_python

    name = os.path.basename(file)
    other = built_for_python(name)
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return name.endswith(".so") and not name.startswith("lib") and other in ("", ours)


def _checked(file: str) -> tuple[ExtensionCheck, tuple[str, ...]]:
    """Return the check of a file, and the modules that it took for imported."""
    from cudaguard.repairs.extension import check_extension

    given: tuple[str, ...] = ()
    while True:
        check = check_extension(file, given=given)
        more = [module for module in _providers(check.missing_libraries) if module not in given]
        if not more:
            return check, given
        given += (more[0],)


def _providers(libraries: Iterable[str]) -> list[str]:
    """Return the modules that bring some of these libraries, by the rules in force."""
    from cudaguard.rules.patterns import arguments, matches
    from cudaguard.wiring import active_rules

    return [
        rule.watch[0]
        for rule in active_rules()
        for patterns in [arguments(rule, "provides")]
        if any(matches(library, patterns) for library in libraries)
    ]
