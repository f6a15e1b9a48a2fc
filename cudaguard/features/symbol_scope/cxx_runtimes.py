"""C++ runtimes beside libstdc++.so.6: linked into an extension, or a file of a package.

The loader keeps one ``std::...::id`` for the process (STB_GNU_UNIQUE), by which the facets of a
locale are numbered, and of the rest of the runtime there are two. The second one writes no
numbers. So each is mapped from a copy in memory in which these objects are its own: as a
compiler makes them that knows no such binding (clang, or GCC with -fno-gnu-unique).

Source: ``elf/dl-lookup.c`` of glibc (``do_lookup_unique``); ``memfd_create(2)``.
"""

from __future__ import annotations

from contextlib import ExitStack

from cudaguard.elf.interposition import is_cxx_runtime
from cudaguard.elf.process import mapped_libraries, uses_glibc
from cudaguard.elf.reader import CXX_RUNTIME, SYMBOL_KIND, ElfFile, is_runtime_id
from cudaguard.errors import ImportOrderError
from cudaguard.files import names_in, os, own_errors
from cudaguard.hooks.caller import caller_frame, describe
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.elf.forecast import LoadedObject

_PRIVATE = "mapped from a copy in memory, in which its C++ runtime is its own"
_REFUSED = "the loader refuses a copy of it"
# Some names of `std::random_device`, and one of a whole runtime.
_PARTS = (
    *(b"_ZNSt13random_device9_M_getvalEv", b"_ZNSt13random_device7_M_finiEv"),
    b"_ZNSt7collateIcE2idE",
)
_ZLIB, _PART_OF_ZLIB = "libz.so.1", b"inflateResetKeep"
_GLOBAL = 1 << 4
_paths: dict[object, str] = {}  # file -> the path by which its copy was mapped in this process


class RuntimeDetector:
    """Keeps another C++ runtime private to its package, or reports that it cannot."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core

    def runtime_exported(
        self, extension: str, library: str, names: tuple[str, ...]
    ) -> tuple[str, Callable[[bool], None]] | None:
        """Return the file to be mapped instead of an extension that exports a C++ runtime, if any.

        And what to call when it was mapped, or could not be. `names` are the runtime's
        ``std::...::id``.

        Raises:
            ImportOrderError: in `strict`, where there is none.
        """
        from cudaguard.features.symbol_scope.findings import STATIC_RUNTIME, static_runtime
        from cudaguard.system.memory_copies import path_of_copy

        frame, why = caller_frame(), ""
        if self._core.permit().acts:
            try:
                state = os.stat(library)
                key = library, state.st_ino, state.st_mtime_ns, state.st_size
                if key in _paths:
                    return _paths[key], lambda _: None
                with ElfFile(library) as file:
                    why = _why_not(library, file)
                    copy = -1 if why else _private(library, file)
            except own_errors(OSError, AttributeError, ImportError) as error:
                why = str(error) or type(error).__name__
            if not why:
                path = path_of_copy(copy)

                def ended(is_mapped: bool) -> None:
                    os.close(copy)
                    if not is_mapped and key not in _paths:
                        said = (extension, library, names, describe(frame), _REFUSED)
                        self._core.reporter.found(static_runtime(*said), frame)
                    elif is_mapped:
                        _paths[key] = path
                        done = (STATIC_RUNTIME.id, "own_runtime", extension, _PRIVATE)
                        self._core.reporter.repaired(*done, frame=frame)

                return path, ended
        finding = static_runtime(extension, library, names, describe(frame), why)
        stop = ImportOrderError(finding.as_error(), name=extension, path=library)
        self._core.reporter.found(finding, frame, stop=stop)
        return None

    def closer_look(self, library: str) -> tuple[str, Callable[[bool], None]] | None:
        """Open libstdc++ or zlib before the first library that needs it, if that has parts of it.

        Mapped together, it would use these parts itself, for all who ask for it later.
        Return the one that is mapped, for a second file of it that a program opens. One that a
        package brings under another name is mapped as its own.
        """
        if not uses_glibc():
            return None
        try:
            if os.path.basename(library) == CXX_RUNTIME:
                return self._second_runtime(library)
            for file in _renamed_runtimes(library):
                self._keep_to_itself(library, file)
            taken = _taken_over(library)
        except own_errors(OSError, AttributeError, ImportError):  # the loader has its own words
            return None
        for path in taken:
            self._open_first(path, library)
        return None

    def _open_first(self, path: str, library: str) -> None:
        from cudaguard.features.symbol_scope.findings import INTERPOSED, STATIC_RUNTIME, taken_over
        from cudaguard.system.preload import open_all

        frame, by = caller_frame(), os.path.basename(library)
        kind = STATIC_RUNTIME if os.path.basename(path) == CXX_RUNTIME else INTERPOSED
        if self._core.permit().acts and open_all((path,))[0]:
            how = f"loaded before {by}, which has parts of it"
            self._core.reporter.repaired(kind.id, "open_first", path, how, frame=frame)
        elif kind is INTERPOSED:
            self._core.reporter.found(taken_over(path, library, describe(frame)), frame)

    def _keep_to_itself(self, library: str, runtime: str) -> None:
        from cudaguard.features.symbol_scope.findings import STATIC_RUNTIME, renamed_runtime
        from cudaguard.system.memory_copies import open_copy

        frame, why = caller_frame(), ""
        if self._core.permit().acts:
            try:
                with ElfFile(runtime) as file:
                    open_copy(_private(runtime, file))  # by its name it is then found there
            except own_errors(OSError) as error:
                why = str(error)
            else:
                done = (STATIC_RUNTIME.id, "own_runtime", runtime, _PRIVATE)
                self._core.reporter.repaired(*done, frame=frame)
                return
        self._core.reporter.found(renamed_runtime(library, runtime, why), frame)

    def _second_runtime(self, library: str) -> tuple[str, Callable[[bool], None]] | None:
        from cudaguard.features.symbol_scope.findings import STATIC_RUNTIME, second_runtime
        from cudaguard.system.newer_copies import has_all

        there = next(filter(is_cxx_runtime, (one.path for one in mapped_libraries())), "")
        if not there or os.path.realpath(there) == os.path.realpath(library):
            return None
        frame = caller_frame()
        is_newer = not has_all(there, library)
        if self._core.permit().acts and not is_newer:
            how = f"not loaded a second time, as {there} is there and has all of it"
            self._core.reporter.repaired(
                STATIC_RUNTIME.id, "one_runtime", library, how, frame=frame
            )
            return there, lambda _: None
        self._core.reporter.found(second_runtime(library, there, is_newer=is_newer), frame)
        return None


def _renamed_runtimes(library: str) -> list[str]:
    """Return the C++ runtimes of other names that will be mapped with a library."""
    with ExitStack() as opened:
        file = opened.enter_context(ElfFile(library))
        if not (file.unique_ids() or any(map(_is_renamed, file.needed))):
            return []
        new = [found for found in _brought(library, file, opened) if _is_renamed(found.path)]
        return [found.path for found in new if found.file.unique_ids()]


def _brought(library: str, file: ElfFile, opened: ExitStack) -> list[LoadedObject]:
    """Return what the load of a library would map."""
    from cudaguard.elf.forecast import Load
    from cudaguard.elf.resident import Resident  # maps a library: not without a reason

    load = Load(library, file, opened.enter_context(Resident()), opened)
    load.map_libraries()
    return [found for found in load.objects if found.is_new]


def _is_renamed(library: str) -> bool:
    """Return True for a libstdc++ that a tool has put into a wheel, by the name that it got."""
    name = os.path.basename(library)
    return name.startswith("libstdc++") and name != CXX_RUNTIME


def _taken_over(library: str) -> list[str]:
    """Return the libraries that the loader would map with a library, and bind to parts of that."""
    from cudaguard.elf.symbols import SharedObject, Wanted
    from cudaguard.system.preload import is_mapped

    with ExitStack() as opened:
        file = opened.enter_context(ElfFile(library))
        symbols = SharedObject(file)
        *parts, has_ids = (symbols.defines(Wanted(name)) for name in _PARTS)
        # An `operator new` of its own, not of such a runtime: what it frees, it has made.
        is_runtime = has_ids or (any(parts) and not symbols.has_global(b"_Znwm"))
        has = {CXX_RUNTIME: is_runtime, _ZLIB: symbols.defines(Wanted(_PART_OF_ZLIB))}
        names = [name for name, is_there in has.items() if is_there and not is_mapped(name)]
        brought = _brought(library, file, opened) if names else []
        return [one.path for one in brought if os.path.basename(one.path) in names]


def _private(library: str, file: ElfFile) -> int:
    """Return the descriptor of a copy whose ids are its own, as are the guards of these.

    An OSError says why there is none.
    """
    from cudaguard.system.memory_copies import copy_of, why_no_room

    if why := why_no_room(file):
        raise OSError(why)
    unique = [(place, name.replace(b"_ZGVN", b"_ZN")) for place, name in file.unique()]
    places = [place + SYMBOL_KIND for place, name in unique if is_runtime_id(name)]
    changed = [(place, _GLOBAL | (file.at(place, 1)[0] & 0xF)) for place in places]
    return copy_of(file, os.path.basename(library), changed)


def _why_not(library: str, file: ElfFile) -> str:
    """Return why a copy would not do; empty if it does. An OSError: a file cannot be read.

    What it needs from its own folders is opened here: a copy lies elsewhere.
    """
    from cudaguard.elf.search_path import Place, SearchPath
    from cudaguard.elf.symbols import SharedObject
    from cudaguard.system.memory_copies import open_together, why_no_copy
    from cudaguard.system.preload import is_mapped

    itself, place, search = SharedObject(file), Place(library, file, None), SearchPath()
    why = "it is mapped already" if is_mapped(library) else why_no_copy(file, itself)
    if why:
        return why
    beside = [name for name in file.needed if not is_mapped(name) and not search.find(name)]
    files = {name: search.find(name, place) for name in beside}
    for name, path in files.items():
        with ElfFile(path) as needed:
            taken = SharedObject(needed).taken_from(itself)
        if taken:
            return f"{name}, which it needs, uses its {taken}"
    if files:
        open_together(file, files, map(os.path.dirname, files.values()))
    opens = any(symbol.name == b"dlopen" for symbol in itself.wanted())
    for folder in (place.runpath or place.rpath) if opens else ():
        for name in names_in(folder):
            if ".so" in name and name != os.path.basename(library) and not is_mapped(name):
                return f"it may open {name}, which its own folder has"
    return ""
