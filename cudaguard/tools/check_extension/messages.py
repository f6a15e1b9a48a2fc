"""What ``check-extension`` says: as text, and as data."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.files.text import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.elf.extension_check import ExtensionCheck
    from cudaguard.tools.layout import Page

EXPECTED = "expected a file, a folder, or the name of an installed distribution"
NOT_FOUND = "no extensions or libraries found"
BAD_GPU = "--gpu: got {!r}, expected a compute capability such as sm_90 or 9.0"
_SHOWN = 3  # symbols
_MOST_LINES = 3  # healthy files that are named one by one
_INDENT = 4
_STYLES = ("red", "yellow", "green")  # of what is wrong, cannot be judged, is in order
_WORDS = {True: "would load", False: "would NOT load", None: "cannot be judged"}


def no_torch(path: str) -> str:
    """A path that leads to no torch."""
    return (
        f"--torch: there is no torch at {path}; expected its folder, a site-packages folder, an "
        "environment, or its interpreter"
    )


def several_torches(path: str, folders: list[str]) -> str:
    """An environment with several Pythons."""
    return f"--torch: {path} has more than one torch, name one of: {', '.join(folders)}"


def torch_of_another_python(folder: str, version: str, own: str) -> str:
    """A torch that this Python could not import."""
    return (
        f"--torch: {folder} is for Python {version}, this is Python {own}: run cudaguard with "
        f"Python {version}"
    )


class OnGpu(NamedTuple):
    """What becomes of a file's GPU code on a GPU.

    Args:
        gpu: As in ``sm_90``.
        ok: True, False, or None where it cannot be said.
        by: The architecture whose code runs, as in ``sm_80``; empty if none does.
        message: The same in words.
    """

    gpu: str
    ok: bool | None
    by: str
    message: str


class Result(NamedTuple):
    """A file that was judged.

    Args:
        name: The file as it was named, or found below a folder that was.
        check: Would it load?
        given: Modules that were taken for imported.
        is_named: True if the file was named itself.
        architectures: What it has GPU code for.
        gpus: What becomes of that on the GPUs that were asked for.
        gpu_remedy: What to do where it has no code for one.
        is_open: True for a library that may get what it lacks from who loads it: only its GPU code
            is judged.
    """

    name: str
    check: ExtensionCheck
    given: tuple[str, ...]
    is_named: bool
    architectures: tuple[str, ...] = ()
    gpus: tuple[OnGpu, ...] = ()
    gpu_remedy: str = ""
    is_open: bool = False

    @property
    def lacks_gpus(self) -> tuple[OnGpu, ...]:
        """The GPUs that it has no code for."""
        return tuple(one for one in self.gpus if one.ok is False)

    @property
    def is_fine(self) -> bool:
        """True if there is nothing to tell."""
        return (self.check.ok is True or self.is_open) and not self.lacks_gpus

    @property
    def is_wrong(self) -> bool:
        """True if it would not load, or has no code for a GPU that was asked for."""
        return self.check.ok is False or bool(self.lacks_gpus)


def data(results: Sequence[Result]) -> dict[str, Any]:
    """Return the document."""
    checks = [
        {
            **one.check.to_dict(),
            "assume_imported": list(one.given),
            "architectures": list(one.architectures),
            "gpus": [{**gpu._asdict(), "by": gpu.by or None} for gpu in one.gpus],
        }
        for one in results
    ]
    return {"tool": "check-extension", "checks": checks}


def write(results: Sequence[Result], page: Page) -> None:
    """Write them, faults first: those in order are only counted where there are many.

    Args:
        results: Of all files.
        page: Where to; a verbose one gets each file, and each symbol.
    """
    is_short = len(results) <= _MOST_LINES
    for one in sorted(results, key=_place):
        if not one.is_fine or page.verbose or (one.is_named and is_short):
            _one(one, page)
    style = _STYLES[min(map(_place, results), default=1)]
    page.add(_summary(results), style=style)


def _place(one: Result) -> int:
    """Return where a file stands: what is wrong first, what is in order last."""
    return 0 if one.is_wrong else 2 if one.is_fine else 1


def _one(one: Result, page: Page) -> None:
    page.add(printable(_headline(one)), style=_STYLES[_place(one)])
    check = one.check
    if not one.is_open:
        page.add(printable(check.message), _INDENT)
        _symbols(check, page)
        _remedy(check.remedy, page)
    if page.verbose and not one.gpus:
        page.add(f"GPU code: {' '.join(one.architectures) or 'none'}", _INDENT)
    for gpu in one.gpus:
        page.add(printable(gpu.message), _INDENT)
    _remedy(one.gpu_remedy if one.lacks_gpus else "", page)


def _remedy(text: str, page: Page) -> None:
    if text:
        page.labeled("remedy", printable(text), _INDENT)


def _headline(one: Result) -> str:
    is_assumed = one.given and one.check.cause != "torch-not-imported"
    assumed = f" (once {' and '.join(one.given)} is imported)" if is_assumed else ""
    cause = f" [{one.check.cause}]" if one.check.cause else ""
    lacks = ", ".join(gpu.gpu for gpu in one.lacks_gpus)
    if one.is_open:
        return f"{one.name}: has {f'NO code for {lacks}' if lacks else 'GPU code'}"
    lacks = f", and has NO code for {lacks}" if lacks else ""
    return f"{one.name}: {_WORDS[one.check.ok]}{assumed}{cause}{lacks}"


def _symbols(check: ExtensionCheck, page: Page) -> None:
    """Add the symbols that are missing; the first few stand in most messages."""
    symbols = check.missing_symbols
    if page.verbose:
        for name, readable in symbols:
            mangled = f" ({name})" if name != readable else ""
            page.labeled("missing symbol", printable(f"{readable}{mangled}"), _INDENT)
    elif symbols and (check.missing_libraries or len(symbols) > _SHOWN):
        whose = ", with those of missing libraries" if check.missing_libraries else ""
        names = page.listed([printable(readable) for _, readable in symbols], _SHOWN)
        page.add(f"missing symbols{whose}: {names}", _INDENT)


def _summary(results: Sequence[Result]) -> str:
    if not results:
        return NOT_FOUND
    loads = [one.check.ok for one in results if not one.is_open]
    counts = (("would load", True), ("would not load", False), ("cannot be judged", None))
    parts = [f"{loads.count(ok)} {words}" for words, ok in counts if ok in loads]
    is_open = sum(one.is_open for one in results)
    parts += [f"{is_open} for GPU code only"] if is_open else []
    for gpu in dict.fromkeys(gpu.gpu for one in results for gpu in one.gpus):
        lacking = sum(gpu == lack.gpu for one in results for lack in one.lacks_gpus)
        parts += [f"{lacking} with no code for {gpu}"] if lacking else []
    return f"{len(results)} checked: {', '.join(parts)}"
