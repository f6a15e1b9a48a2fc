"""Newer copies of a library than the one that the dynamic loader would take.

Source: ``ld.so(8)``; names of files and metadata of wheels tell releases.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from glob import glob

from cudaguard.elf.process import library_path
from cudaguard.elf.reader import ElfFile, read_elf
from cudaguard.elf.search_path import SearchPath, read_place
from cudaguard.files import bytes_in, escape, os, own_errors
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.preload import (
    CUDA_FOLDERS,
    below,
    installed_files,
    is_mapped,
    metadata_folders,
    soname_of,
)
from cudaguard.system.runtimes import runtime_of, stem_of, version_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaguard.elf.forecast import Lack
    from cudaguard.elf.symbols import SharedObject


def hidden_by_older(pattern: str) -> tuple[str, ...]:
    """Return what a pattern finds below sys.path if ``LD_LIBRARY_PATH`` has an older one of these.

    Most folders of that variable have none of that name at all: then no file is read.
    """
    beginning = f"{os.path.basename(pattern)}*"
    there = [file for f in library_path() for file in glob(os.path.join(escape(f), beginning))]
    files = installed_files(pattern) if there else ()
    for file in files:
        name = soname_of(file)
        own = version_of(file, name)
        others = (other for other in there if os.path.basename(other).startswith(name))
        if any(v < own[: len(v)] for v in (version_of(other, name) for other in others)):
            return files
    return ()


def newer_than_found(path: str) -> tuple[str, ...]:
    """Return libraries that have what the ones that the loader finds lack, for a refused library.

    None where an older one is mapped: it stays, and a second one would help nobody.
    """
    from cudaguard.elf.forecast import forecast

    found = forecast(path)
    lacking = {*found.versions, *found.symbols}
    chosen: dict[str, str] = {}
    for lack in () if found.libraries else (*found.versions, *found.symbols):
        if lack in lacking:
            names = read_elf(lack.needed_by).needed
            if lack.library:  # another one by its soname, as where conda's libffi.so.7 is libffi 8
                names = soname_of(lack.library), os.path.basename(lack.library)
            files = [f for n in names if not is_mapped(n) for f in _copies_of(n, lack.needed_by)]
            for file in sorted(files, key=lambda file: version_of(file, soname_of(file)))[::-1]:
                name, had = soname_of(file), _had(file, lacking)
                if lack in had and name not in chosen:
                    chosen[name] = file
                    lacking -= had
                    break
            else:
                return ()
    return tuple(chosen.values())


def needed_by_others(name: str, asking: str) -> tuple[tuple[str, ...], str, frozenset[str]] | None:
    """Return another copy of what is about to be mapped, who needs it, and this one's modules.

    The first copy that is mapped serves all who come later. None where one of its set is mapped,
    or where the other copy has not all that this one has. The file `asking` is about to ask for it;
    empty: it is opened by its name. It has no modules if it needs the other copy itself.
    """
    if is_mapped(name):
        return None
    wheels = below(os.path.join(CUDA_FOLDERS, escape(name)))
    copies = {os.path.realpath(file): file for file in wheels}
    try:
        with ExitStack() as opened:
            place = read_place(asking) if copies and asking else None
            found = os.path.realpath(SearchPath().find(name, place)) if copies else ""
            if found in copies or not os.path.isfile(found):
                return None
            from cudaguard.elf.symbols import SharedObject

            taken = SharedObject(opened.enter_context(ElfFile(found)))
            for real, path in copies.items():
                other = SharedObject(opened.enter_context(ElfFile(real)))
                files = _with_its_set(path)
                if any(map(is_mapped, map(os.path.basename, files))):
                    continue
                if not taken.named(taken.codes() - other.codes()):  # it has all of these
                    for client, modules in _clients_of(path, name, asking):
                        if lacking(taken, other, client):
                            return files, os.path.basename(client), modules
    except own_errors(OSError):
        pass
    return None


def lacking(library: SharedObject, other: SharedObject, client: str) -> list[str]:
    """Return the symbols that a file needs, and that another copy of a library defines alone."""
    from cudaguard.elf.symbols import SharedObject

    with ElfFile(client) as file:
        wanted = SharedObject(file).wanted()
    return [w.name.decode() for w in wanted if other.defines(w) and not library.defines(w)]


def _with_its_set(file: str) -> tuple[str, ...]:
    """Return a file with those beside it that have to be of the same release."""
    folder, name = os.path.split(file)
    stem, end = stem_of(name), name.partition(".so")[2]
    part_of = runtime_of(stem).part_of if stem else ""
    return (file, *(
        f"{folder}/{other}"
        for other in sorted(os.listdir(folder) if part_of else ())
        if other != name and other.endswith(f".so{end}") and stem_of(other)
        if runtime_of(stem_of(other)).part_of == part_of
    ))  # fmt: skip


def _clients_of(file: str, name: str, asking: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield who needs a library: who asks, and those of distributions that require the file's."""
    from cudaguard.elf.library_facts import distributions_of

    yield from [(asking, frozenset[str]())] if asking else ()
    owners = distributions_of([file]).get(file, ())
    wanted = [f"requires-dist: {owner.partition(' ')[0].lower()}".encode() for owner in owners]
    for folder, info in metadata_folders() if wanted else ():
        said = bytes_in(f"{folder}/{info}/METADATA").lower().replace(b"_", b"-")
        if any(dist in said for dist in wanted):
            lines = bytes_in(f"{folder}/{info}/RECORD").decode("utf-8", "replace").splitlines()
            paths = [line.partition(",")[0] for line in lines]
            modules = {path.partition("/")[0].partition(".")[0] for path in paths}
            for path in (f"{folder}/{line}" for line in paths if ".so" in line[-24:]):
                if name in read_elf(path).needed:
                    yield path, frozenset(filter(str.isidentifier, modules))


def _copies_of(name: str, needed_by: str) -> list[str]:
    """Return the files of that name in all places where a library or the environment has them."""
    place = read_place(needed_by)
    own = (*place.runpath, *place.rpath) if place else ()
    folders = [os.path.dirname(needed_by), *own, *library_path()]
    folders += [f"{sys.prefix}/lib", f"{sys.base_prefix}/lib"]
    found = (SearchPath(has_variable=is_set).find(name) for is_set in (True, False))
    files = [*(f"{folder}/{name}" for folder in folders), *found]
    files += below(os.path.join(CUDA_FOLDERS, escape(name)))
    return list(dict.fromkeys(os.path.realpath(file) for file in files if os.path.exists(file)))


def _had(file: str, lacks: Iterable[Lack]) -> set[Lack]:
    """Return which of some missing symbols and versions a library has."""
    from cudaguard.elf.symbols import SharedObject, Wanted

    try:
        with ElfFile(file) as opened:
            symbols, name = SharedObject(opened), opened.soname
            return {
                lack
                for lack in lacks
                for text in (lack.name.encode(),)
                if (
                    name in (soname_of(lack.library), os.path.basename(lack.library))
                    and not symbols.lacks_version(text)
                    if lack.library
                    else symbols.defines(Wanted(text))
                )
            }
    except own_errors(OSError):
        return set()


def brings_newer(lack: Lack, extension: str) -> bool:
    """Return True if an extension, or what it brings, would get a copy that does for all."""
    name, asked = soname_of(lack.library), (lack, lack._replace(library=""))  # version, or symbol
    files = [SearchPath().find(name, read_place(one)) for one in (lack.needed_by, extension)]
    return any(_had(file, asked) and has_all(file, lack.library) for file in files)


def newer_in_environment(soname: str, files: Iterable[str], asking: str) -> str:
    """Return a newer copy of a library where the loader would take an older one.

    Empty where the library is mapped, or a folder of LD_LIBRARY_PATH has it: somebody wants that
    one. The environment has the `files`, and the system may have one; who is `asking`, if no
    library, names no folders.
    """
    is_wanted = any(os.path.exists(os.path.join(folder, soname)) for folder in library_path())
    if is_wanted or is_mapped(soname):
        return ""
    found, of_system = (SearchPath().find(soname, place) for place in (read_place(asking), None))
    own = [(version_of(file, soname), file) for file in files if read_elf(file).soname == soname]
    if of_system and of_system != found:
        own.append((version_of(of_system, soname), of_system))
    version, newest = max(own, default=((), ""))
    serving = version_of(found, soname) if found else (0,)
    if serving and version and serving != version:
        return newest if serving < version else ""
    has_more = newest and found and has_all(newest, found) and not has_all(found, newest)
    return newest if has_more else ""


def has_all(file: str, other: str) -> bool:
    """Return True if a library has all names of another one, as the versions of names tell."""
    from cudaguard.elf.symbols import SharedObject

    try:
        with ElfFile(file) as first, ElfFile(other) as second:
            one, two = SharedObject(first), SharedObject(second)
            if two.versions() and one.versions() != two.versions():
                return one.versions() > two.versions()
            return not two.named(two.codes() - one.codes())
    except own_errors(OSError):
        return False


def led_to(soname: str, libraries: Iterable[str]) -> list[str]:
    """Return the files of that name that the loader would find for libraries which need it."""
    found = [SearchPath().find(soname, read_place(library)) for library in libraries]
    return list(dict.fromkeys(map(os.path.realpath, filter(None, found))))
