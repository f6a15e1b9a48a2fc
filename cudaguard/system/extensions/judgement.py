"""Tells from files whether an extension would load; nothing is loaded or imported."""

from __future__ import annotations

import re

from cudaguard.elf.demangle import readable
from cudaguard.elf.extension_check import ExtensionCheck
from cudaguard.elf.forecast import forecast
from cudaguard.elf.loaded import serving_file
from cudaguard.elf.reader import needed_libraries
from cudaguard.files import os, ours, read_start
from cudaguard.system.extensions.causes import built_for_python, cause_of, library_of
from cudaguard.system.extensions.words import words_for
from cudaguard.system.facts import Facts
from cudaguard.system.torch_build import extensions_of, homes_of, look_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.elf.extension_check import Forecast, Lack
    from cudaguard.elf.forecast import Settled

_HEADER = re.compile(rb'[\0"](/[!-~]{1,400}?)/torch/include/')
_IMPORT_ARRAY = b"module compiled against ABI version 0x%"
_MOST = 1 << 25  # the code of a large extension comes after its constants at times


def check_extension(
    path: str | os.PathLike[str], *, assume_imported: Iterable[str] | None = None
) -> ExtensionCheck:
    """Tell whether an extension would load, without loading it or importing anything.

    Args:
        path: The extension, or any shared library.
        assume_imported: None for this process as it is. Names of modules such as ``("torch",)``:
            as if these were imported as well; their files are read, and nothing is imported.

    Returns:
        Whether it would load; if not, the cause, in words, and what to do. `ok` is None where
        that cannot be said: no glibc, a file that cannot be read, tables that make no sense.

    Raises:
        TypeError: `path` is no path, or `assume_imported` is a single text or has what is no name.
    """
    if isinstance(assume_imported, str):
        expected = f"a tuple of module names such as ({assume_imported!r},)"
        raise TypeError(f"assume_imported must be {expected}, not a text")
    modules = tuple(assume_imported or ())
    for module in modules:
        if not isinstance(module, str):
            expected = "names of modules such as 'torch'"
            raise TypeError(f"assume_imported must have {expected}, not {module!r}")
    return check_one_of_many(os.fsdecode(path), modules, None)


def check_one_of_many(
    path: str, modules: tuple[str, ...], settled: dict[object, Settled] | None
) -> ExtensionCheck:
    """Check an extension as `check_extension` does, remembering what others need as well.

    Args:
        path: The extension.
        modules: Are taken for imported.
        settled: As for `cudaguard.elf.forecast.forecast`.
    """
    files = [file for module in modules for file in extensions_of(module)]
    found = forecast(path, files, settled)
    other = built_for_python(found.path)
    if found.is_fine and other and other != look_around().python:
        detail = f"its name says {other}, and an import does not even look at it"
        return judged(found._replace(problem="python-abi", detail=detail), modules)
    numpy = (found.is_fine and _is_for_numpy_1(found.path) and Facts().version("numpy")) or ""
    if numpy.partition(".")[0].isdecimal() and int(numpy.partition(".")[0]) > 1:
        found = found._replace(problem="numpy-abi", detail=f"NumPy {numpy}")
    return judged(found, modules)


def judged(found: Forecast, given: tuple[str, ...] = ()) -> ExtensionCheck:
    """Return the check that follows from a forecast.

    Args:
        found: What the loader would meet.
        given: Modules that are taken for imported.
    """
    if found.is_fine:
        return ExtensionCheck(True, found.path)
    around = look_around(given)
    if not found.libraries and not found.versions:  # else these are the cause
        found = found._replace(symbols=tuple(_with_library(lack, found) for lack in found.symbols))
    cause, about = cause_of(found, around)
    if cause in ("cxx11-abi", "other-torch"):
        around = around._replace(built_against=torch_folder(found.path))
    if cause == "library-missing":
        around = around._replace(homes=homes_of(lack.name for lack in about))
    symbols = readable(dict.fromkeys(lack.name for lack in found.symbols))
    message, remedy = words_for(cause, about, found, around, dict(symbols))
    return ExtensionCheck(
        None if found.problem == "unknown" else False,
        found.path,
        cause,
        message,
        missing_symbols=tuple(symbols),
        missing_libraries=tuple(dict.fromkeys(lack.name for lack in found.libraries)),
        remedy=remedy,
    )


def _with_library(lack: Lack, found: Forecast) -> Lack:
    """Return a symbol with the library that should have it, where one is named that should."""
    stem = library_of(lack.name)
    if not stem:
        return lack
    is_own = lack.needed_by == found.path
    needed = found.needed if is_own else needed_libraries(lack.needed_by)
    name = next((name for name in needed if name.startswith(f"{stem}.so")), "")
    return lack._replace(library=serving_file(name) or name) if name else lack


def torch_folder(path: str) -> str:
    """Return the folder of the torch that an extension was built against, empty if unknown.

    Assertions in torch's headers leave the path of the header.
    """
    match = _HEADER.search(_constants(path))
    return f"{match[1].decode('ascii')}/torch" if match else ""


def _is_for_numpy_1(path: str) -> bool:
    """Return True for an extension module that was compiled with the headers of NumPy 1.

    The name of what ``import_array()`` imports is compiled in. That of NumPy 2 names both.
    """
    if os.path.basename(path).startswith("lib"):  # libtorch_python goes on without NumPy
        return False
    data = _constants(path)
    return _IMPORT_ARRAY in data and b"numpy.core" in data and b"numpy._core" not in data


def _constants(path: str) -> bytes:
    """Return the part of a file that has its constants; empty if it cannot be read."""
    try:
        return read_start(path, _MOST)
    except ours(OSError, ValueError):
        return b""
