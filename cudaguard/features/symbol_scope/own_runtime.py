"""Extensions that were linked with -static-libstdc++ and show that C++ runtime to everyone.

The loader keeps one ``std::...::id`` for the process (STB_GNU_UNIQUE), by which the facets of a
locale are numbered, and of the rest of the runtime there are two. Whoever comes second writes no
numbers. So the extension is mapped from a copy in memory in which these objects are its own: as a
compiler makes them that knows no such binding (clang, or GCC with -fno-gnu-unique).

Source: ``elf/dl-lookup.c`` of glibc (``do_lookup_unique``); ``memfd_create(2)``.
"""

from __future__ import annotations

from cudaguard.elf.process import uses_glibc
from cudaguard.elf.reader import SYMBOL_KIND, ElfFile, is_runtime_id
from cudaguard.elf.search_path import Place, SearchPath
from cudaguard.errors import ImportOrderError
from cudaguard.files import os, own_errors
from cudaguard.hooks.caller import caller_frame, describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.dispatch import Dispatch

_ID = "CG813"
_PRIVATE = "mapped from a copy in memory, in which its C++ runtime is its own"
_LARGEST = 1 << 26  # bytes of an extension: they are copied
_GLOBAL = 1 << 4


class RuntimeDetector:
    """Keeps such runtimes to those who brought them; tells of those where it cannot."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._copies: dict[str, str] = {}

    def runtime_exported(self, extension: str, library: str, names: tuple[str, ...]) -> str | None:
        """Return the file to be mapped instead of an extension that exports a C++ runtime.

        Args:
            extension: Its name.
            library: Its file.
            names: The ``std::...::id`` objects of the runtime.

        Raises:
            ImportOrderError: in `strict`, where there is none.
        """
        from cudaguard.features.symbol_scope.findings import static_runtime

        frame, why = caller_frame(), ""
        if self._core.permit().acts:
            copy = self._copies.get(library)
            if copy is not None:
                return copy
            try:
                why = _why_not(library)
                if not why:
                    self._copies[library] = copy = _copied(library)
                    done = (_ID, "own_runtime", extension, _PRIVATE)
                    self._core.reporter.repaired(*done, frame=frame)
                    return copy
            except own_errors(OSError, AttributeError, ImportError) as error:
                why = str(error)
        finding = static_runtime(extension, library, names, describe(frame), why)
        stop = ImportOrderError(finding.as_error(), name=extension, path=library)
        self._core.reporter.found(finding, frame, stop=stop)
        return None


def _why_not(library: str) -> str:
    """Return why a copy would not do; has what it needs mapped, which the copy leads nowhere to.

    Raises:
        OSError: It cannot be read.
    """
    from cudaguard.system.preload import is_mapped, open_all

    if not uses_glibc():
        return "this C library is not glibc"
    if is_mapped(library):
        return "it is mapped already"
    if os.stat(library).st_size > _LARGEST:
        return f"it has more than {_LARGEST >> 20} MB"
    with ElfFile(library) as file:
        place, search = Place(library, file, None), SearchPath()
        if place.runpath or place.rpath:
            needed = [search.find(name, place) for name in file.needed if not is_mapped(name)]
            open_all(filter(None, needed))
        missing = [name for name in file.needed if not is_mapped(name) and not search.find(name)]
    return f"{missing[0]}, which it needs, is found from its own folder only" if missing else ""


def _copied(library: str) -> str:
    """Return the path of a copy, which is there as long as the process.

    Raises:
        OSError: There is no room for it.
    """
    with ElfFile(library) as file:
        # With the variables that guard their initialization.
        unique = [(place, name.replace(b"_ZGVN", b"_ZN")) for place, name in file.unique()]
        places = [place for place, name in unique if is_runtime_id(name)]
        data = bytearray(file.whole())
    for place in places:
        data[place + SYMBOL_KIND] = _GLOBAL | (data[place + SYMBOL_KIND] & 0xF)
    copy = os.memfd_create(os.path.basename(library)[:200])
    try:
        with memoryview(data) as rest:
            done = 0
            while done < len(rest):
                done += os.write(copy, rest[done:])
    except BaseException:
        os.close(copy)
        raise
    return f"/proc/self/fd/{copy}"
