"""Which copy of a library is newer than the one that the dynamic loader would take.

Source: ``ld.so(8)``; names of files and metadata of wheels tell releases.
"""

from __future__ import annotations

import sys
from glob import escape, glob

from cudaguard.elf.forecast import forecast
from cudaguard.elf.library_facts import version_of
from cudaguard.elf.process import library_path
from cudaguard.elf.reader import ElfFile, read_elf
from cudaguard.elf.search_path import Place, SearchPath
from cudaguard.elf.symbols import SharedObject, Wanted
from cudaguard.files import os, own_errors
from cudaguard.system.preload import CUDA_FOLDERS, below, is_mapped, name_of
from cudaguard.system.runtimes import runtime_of, stem_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.elf.forecast import Lack


def finds_older(file: str) -> bool:
    """Return True if the loader finds an older file of the name of this one."""
    name = name_of(file)
    found = [path for f in library_path() for path in glob(os.path.join(escape(f), f"{name}*"))]
    found += filter(None, [SearchPath().find(name)])
    stem = stem_of(name)
    wheel = runtime_of(stem).wheel if stem else ""
    own = version_of(file, name, wheel)
    versions = [version_of(path, name, wheel) for path in found]
    return any(version and version < own[: len(version)] for version in versions)


def newer_than_found(path: str) -> tuple[str, ...]:
    """Return libraries that have what the ones that the loader finds lack, for a refused library.

    None where an older one is mapped: it stays, and a second one would help nobody.

    Args:
        path: The library that was refused for a symbol, or a version of symbols.
    """
    found = forecast(path)
    lacking = {*found.versions, *found.symbols}
    chosen: dict[str, str] = {}
    for lack in () if found.libraries else (*found.versions, *found.symbols):
        if lack in lacking:
            names = [name_of(lack.library)] if lack.library else read_elf(lack.needed_by).needed
            files = [f for n in names if not is_mapped(n) for f in _copies_of(n, lack.needed_by)]
            for file in sorted(files, key=lambda file: version_of(file, name_of(file)))[::-1]:
                name, had = name_of(file), _had(file, lacking)
                if lack in had and name not in chosen:
                    chosen[name] = file
                    lacking -= had
                    break
    return () if lacking else tuple(chosen.values())


def _copies_of(name: str, needed_by: str) -> list[str]:
    """Return the files of that name in all places where a library or the environment has them."""
    try:
        with ElfFile(needed_by) as file:
            place = Place(needed_by, file, None)
    except own_errors(OSError):
        return []
    folders = [os.path.dirname(needed_by), *place.runpath, *place.rpath, *library_path()]
    folders += [f"{sys.prefix}/lib", f"{sys.base_prefix}/lib"]
    files = [f"{folder}/{name}" for folder in folders] + [SearchPath().find(name)]
    files += below(os.path.join(CUDA_FOLDERS, escape(name)))
    return list(dict.fromkeys(os.path.realpath(file) for file in files if os.path.exists(file)))


def _had(file: str, lacks: Iterable[Lack]) -> set[Lack]:
    """Return which of some missing symbols and versions a library has."""
    try:
        with ElfFile(file) as opened:
            symbols, name = SharedObject(opened), opened.soname
            return {
                lack
                for lack in lacks
                for text in (lack.name.encode(),)
                if (
                    name_of(lack.library) == name and not symbols.lacks_version(text)
                    if lack.library
                    else symbols.defines(Wanted(text))
                )
            }
    except own_errors(OSError):
        return set()


def newer_in_environment(soname: str, files: Iterable[str], asking: str) -> str:
    """Return the environment's copy of a library where the loader would take an older one.

    Empty where the library is mapped, or a folder of LD_LIBRARY_PATH has it: somebody wants that
    one.

    Args:
        soname: As in ``libstdc++.so.6``.
        files: What the environment has by that name.
        asking: The file that is about to ask for it; one that is no library names no folders.
    """
    own = [(version_of(file, soname), file) for file in files if read_elf(file).soname == soname]
    is_wanted = any(os.path.exists(os.path.join(folder, soname)) for folder in library_path())
    if not own or is_wanted or is_mapped(soname):
        return ""
    try:
        with ElfFile(asking) as file:
            found = SearchPath().find(soname, Place(asking, file, None))
    except own_errors(OSError):
        found = SearchPath().find(soname)
    version, newest = max(own)
    serving = version_of(found, soname) if found else (0,)
    return newest if serving and serving < version else ""


def led_to(soname: str, libraries: Iterable[str]) -> list[str]:
    """Return the files of that name in the folders that some libraries name, which need it."""
    found: list[str] = []
    for library in libraries:
        try:
            with ElfFile(library) as file:
                place = Place(library, file, None) if soname in file.needed else None
        except own_errors(OSError):
            continue
        if place is not None:
            found += [f"{folder}/{soname}" for folder in place.runpath or place.rpath]
    return list(dict.fromkeys(os.path.realpath(file) for file in found if os.path.exists(file)))
