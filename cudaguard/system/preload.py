"""Open libraries of installed packages before somebody finds another copy, or none.

The first mapped library of a name serves everyone who asks for that name later, wherever its file
lies; an absolute path decides which one that is. Nothing is opened where a library of the name is
there already: it would be mapped beside the other one and help nobody.

Source: ``dlopen(3)``, ``ld.so(8)``; how nvidia's wheels are laid out: ``nvidia/<part>/lib``.
"""

from __future__ import annotations

import sys
from glob import glob

from cudaguard.elf.reader import BUDGET, Budget, ElfFile, read_elf
from cudaguard.files import bytes_in, escape, names_in, os, own_errors
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import has_kernel_driver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Where the wheels that bring CUDA's libraries have them, below a folder of sys.path.
CUDA_FOLDERS = os.path.join("nvidia", "*", "lib")
DRIVER = "libcuda.so.1"
_COPY = BUDGET >> 6  # a look for a copy, through the files that each distribution lists


def installed_files(pattern: str) -> tuple[str, ...]:
    """Return the files that a pattern finds, each name once, the first folder of sys.path first.

    The pattern is relative to these folders: ``nvidia/nccl/lib/libnccl.so.2``.
    """
    found: dict[str, str] = {}
    for file in below(pattern):
        found.setdefault(os.path.basename(file), file)
    return tuple({os.path.realpath(file): file for file in found.values()}.values())


def all_installed(pattern: str) -> tuple[str, ...]:
    """Return all files that a pattern finds, as `installed_files` those of the first folder."""
    return tuple({os.path.realpath(file): file for file in below(pattern)}.values())


def not_mapped(files: Iterable[str]) -> tuple[str, ...]:
    """Return those of the files of whose name no library is loaded yet."""
    return tuple(file for file in files if not is_mapped(soname_of(file)))


def soname_of(file: str) -> str:
    """Return the name by which a library is asked for."""
    return read_elf(file).soname or os.path.basename(file)


def unmet_needs(library: str) -> tuple[str, ...]:
    """Return what a library needs and the loader would not find, from where it is installed.

    The library is relative to the folders of sys.path; nothing where it is not installed, nor where
    something else than the driver is nowhere: it would not load in spite of the rest.
    """
    asking = next(below(library), None)
    found: dict[str, str] = {}
    files = _with_needs(found, [asking] if asking else [])
    return files if all(file or name == DRIVER for name, file in found.items()) else ()


def missing_with_needs(missing: str, asking: str) -> tuple[str, ...]:
    """Return a library that the loader has not found, from where it is installed, and its needs.

    Nothing where it is in the process, or not installed. What else the file `asking` for it lacks
    comes along.
    """
    found = {} if is_mapped(missing) else _installed_copy(missing, asking)
    return _with_needs(found, [asking, *found.values()]) if found else ()


def unfound(name: str) -> tuple[str, ...]:
    """Return what the loader would not find by its bare name, ``libcublas.so.12``, and its needs.

    Nothing for one that is mapped, or not installed.
    """
    from cudaguard.elf.search_path import SearchPath

    found = {} if is_mapped(name) or SearchPath().find(name) else _installed_copy(name, "")
    return _with_needs(found, list(found.values()))


def _installed_copy(name: str, asking: str) -> dict[str, str]:
    """Return name -> file of a library that is installed where the loader does not look.

    That is beside the file `asking`, in NVIDIA's wheels, in the environment's folder of libraries,
    in another distribution, or in a toolkit. Empty if it is nowhere, or in several distributions.
    """
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    homes += sorted(glob("/usr/local/cuda*"), reverse=True)
    places = (
        (f"{os.path.dirname(asking)}/{name}",),  # of a build that has no RUNPATH
        below(os.path.join(CUDA_FOLDERS, escape(name))),
        (f"{prefix}/lib/{name}" for prefix in (sys.prefix, sys.base_prefix)),
        _recorded(name),
        (f"{home}/lib64/{name}" for home in homes if home),
    )
    file = next((file for place in places for file in place if os.path.isfile(file)), "")
    return {name: file} if file else {}


def _recorded(name: str) -> Iterator[str]:
    """Yield the file of that name that a distribution has, unless several have one."""
    found = {*listed_as(f"{name},")}
    yield from found if len(found) == 1 else ()


def listed_as(beginning: str) -> Iterator[str]:
    """Yield a file of each distribution that has one whose name so begins; none in its `.libs`."""
    for folder, info in metadata_folders():
        record = bytes_in(f"{folder}/{info}/RECORD")
        if (place := record.find(f"/{beginning}".encode())) >= 0:
            line = record[record.rfind(b"\n", 0, place) + 1 : record.find(b",", place)]
            if b".libs/" not in line:  # what a wheel has bundled for itself
                yield os.path.realpath(f"{folder}/{os.fsdecode(line)}")


def metadata_folders(folders: Iterable[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the folders of metadata: the folder, by default of sys.path, and the name."""
    entries = sys.path if folders is None else folders
    for folder in [entry for entry in entries if isinstance(entry, str) and entry]:
        yield from ((folder, name) for name in names_in(folder) if name.endswith(".dist-info"))


def _with_needs(found: dict[str, str], todo: list[str]) -> tuple[str, ...]:
    """Return what is found, by soname, with what it and the rest need and the loader lacks.

    In `found` what is nowhere is empty.
    """
    from cudaguard.elf.search_path import Place, SearchPath

    search, budget = SearchPath(), Budget()
    while todo:
        path = todo.pop()
        try:
            with ElfFile(path, budget) as file:
                place = Place(path, file, None)
                lacking = [n for n in file.needed if not is_mapped(n) and not search.find(n, place)]
            for name in [name for name in lacking if name not in found]:
                budget.spend(_COPY)
                new = _installed_copy(name, path)
                found.update(new or {name: ""})
                todo += new.values()
        except own_errors(OSError):
            continue
    return tuple(filter(None, found.values()))


def has_driver() -> bool:
    """Return True if there is an NVIDIA driver, kernel and library; none of it is loaded."""
    from cudaguard.elf.search_path import SearchPath

    return has_kernel_driver() and (is_mapped(DRIVER) or bool(SearchPath().find(DRIVER)))


def is_mapped(name: str) -> bool:
    """Return True if a library is in the process, by soname or, for a path, as this very file."""
    import _ctypes

    try:
        _ctypes.dlclose(_ctypes.dlopen(name, os.RTLD_NOLOAD | os.RTLD_LAZY))
    except own_errors(OSError):
        return False
    return True


def open_all(files: Iterable[str]) -> tuple[tuple[str, ...], OSError | None]:
    """Open the files in an order in which each finds what it needs.

    What others of them need comes first: else the loader would look for it by itself, and may
    find another file. Return what was opened, and why the loader refuses one of the others.
    """
    import _ctypes

    opened, error = [], None
    for file in needed_first(tuple(files)):
        try:
            _ctypes.dlopen(file, os.RTLD_NOW)
            opened.append(file)
        except own_errors(OSError) as reason:
            error = reason
    return tuple(opened), error


def needed_first(files: tuple[str, ...]) -> list[str]:
    """Return libraries in an order in which what others of them need comes first."""
    elves = {file: read_elf(file) for file in files}
    by_name = {elf.soname or os.path.basename(file): file for file, elf in elves.items()}
    ordered: dict[str, None] = {}
    seen = set()

    def add(file: str) -> None:
        if file not in seen:
            seen.add(file)
            for name in elves[file].needed:
                if name in by_name:
                    add(by_name[name])
            ordered[file] = None

    for file in files:
        add(file)
    return list(ordered)


def below(pattern: str) -> Iterator[str]:
    """Yield the files that a pattern finds below the folders of sys.path."""
    for entry in sys.path:
        if isinstance(entry, str):
            folder = entry or os.getcwd()  # as imports take it
            yield from sorted(glob(os.path.join(escape(folder), pattern)))
