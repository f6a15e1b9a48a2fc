"""A library that another package has, under the same name and built for other libraries.

auditwheel names what it puts into a wheel by the contents that it had before: libhdf5_hl has one
name in the wheels of h5py and netCDF4, and needs another libhdf5 in each. The loader takes the
first file of a name for both, and the second package works with two copies of libhdf5. So it gets
its own file, as a copy in memory with another name; what needs it is copied too, and needs that.
"""

from __future__ import annotations

from contextlib import ExitStack

from cudaguard.elf.forecast import Load
from cudaguard.elf.process import uses_glibc
from cudaguard.elf.reader import CXX_RUNTIME, ElfFile, read_elf
from cudaguard.elf.search_path import SearchPath
from cudaguard.files import os, own_errors
from cudaguard.kernel.loads import NAMESAKE
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.memory_copies import copy_of, open_copy, path_of_copy, why_no_copy
from cudaguard.system.preload import needed_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.elf.forecast import LoadedObject
    from cudaguard.elf.resident import Resident

_FIRST_LETTERS = b"LMNOPQRSTUVWXYZ"  # of new names, in place of a small one


class SonameDetector:
    """Keeps the libraries of two packages apart."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._mapped: dict[str, str] = {}  # files -> the paths by which their copies were mapped

    def closer_look(self, library: str) -> tuple[str, Callable[[bool], None]] | None:
        """Give a library that is about to be mapped the files of its own package.

        Return the file to be mapped instead, if one has to be, and what to call afterwards.
        """
        if library in self._mapped:
            return self._mapped[library], lambda _: None
        why, _ = self._core.kernel.of_loads().judged(library)
        if not (why.endswith(NAMESAKE) and self._core.permit().acts and uses_glibc()):
            return None
        try:
            names, folder, copy = keep_apart(library)
        # The loader has its own words.
        except own_errors(OSError, AttributeError, ImportError, StopIteration):
            return None
        if names:
            how = f"gets its own {names}, not that of {folder}"
            from cudaguard.features.duplicate_libraries.findings import ANOTHER_FILE

            subject = os.path.basename(library)
            self._core.reporter.repaired(ANOTHER_FILE.id, "keep_apart", subject, how)
        if copy < 0:
            return None
        path = path_of_copy(copy)

        def ended(is_mapped: bool) -> None:
            os.close(copy)
            if is_mapped:
                self._mapped[library] = path

        return path, ended


_renamed: dict[str, str] = {}  # files -> the names that their copies in this process have


def keep_apart(library: str) -> tuple[str, str, int]:
    """Map what a library needs, each from its own package where another one has the same soname.

    Return the names that were kept apart, the folder of the other files, and the descriptor of a
    copy of the library, or -1. Nothing is done where it would change more than that.
    """
    import _ctypes  # not before: it maps a library

    from cudaguard.elf.resident import Resident

    nothing = "", "", -1
    with ExitStack() as opened:
        resident = opened.enter_context(Resident())
        load = Load(library, opened.enter_context(ElfFile(library)), resident, opened)
        load.map_libraries()
        root, *new = [loaded for loaded in load.objects if loaded.is_new]
        own: dict[str, str] = {}  # name -> the file that this package has
        folder = ""
        for user in (root, *new):
            for name in user.file.needed:
                file, other = _conflicting(name, user, resident)
                if file:
                    own[name], folder = file, os.path.dirname(os.path.abspath(other))
        files = {loaded.path: loaded for loaded in new}
        for file in own.values():
            if file not in _renamed:
                files[file] = load.open(file, root.place, is_new=True)
        order = needed_first(tuple(files))
        if not own or any(_changes(files[path], root, files.values()) for path in order):
            return nothing
        names = {name: _renamed.get(file) or _unused(name, resident) for name, file in own.items()}
        copied = [p for p in order if p in own.values() or names.keys() & {*files[p].file.needed}]
        is_client = not names.keys().isdisjoint(root.file.needed)
        objects = [*(files[path] for path in copied), *([root] if is_client else ())]
        if not all(names.values()) or any(why_no_copy(o.file, o.symbols) for o in objects):
            return nothing
        for path in order:
            if path in copied:
                open_copy(_copied(files[path], names))
            else:
                _ctypes.dlopen(path, os.RTLD_NOW)
        _renamed.update((file, names[name]) for name, file in own.items())
        return ", ".join(own), folder, _copied(root, names) if is_client else -1


def _conflicting(name: str, user: LoadedObject, resident: Resident) -> tuple[str, str]:
    """Return the file that an object leads to and the one that it gets, if they need others."""
    handle = resident.handle(name)
    file = SearchPath().find(name, user.place) if handle else ""
    other = resident.path(handle) if file else ""
    if not other or os.path.samefile(file, other):
        return "", ""
    return (file, other) if {*read_elf(file).needed} - {*read_elf(other).needed} else ("", "")


def _changes(library: LoadedObject, root: LoadedObject, others: Iterable[LoadedObject]) -> bool:
    """Return True if a library would find other symbols when it is opened by itself."""
    if os.path.basename(library.path) == CXX_RUNTIME:
        return False
    behind = {*library.file.needed}
    return any(
        library.symbols.taken_from(other.symbols)
        for other in (root, *others)
        if other is not library and not behind & {other.file.soname, os.path.basename(other.path)}
    )


def _unused(name: str, resident: Resident) -> str:
    """Return a name of the same length that no library has; empty if there is none."""
    names = (chr(letter) + name[1:] for letter in _FIRST_LETTERS)
    return next((other for other in names if not resident.handle(other)), "")


def _copied(library: LoadedObject, names: dict[str, str]) -> int:
    """Return the descriptor of a copy that has other names for its libraries, or for itself."""
    changed = [(p, ord(new[0])) for old, new in names.items() for p in library.file.places_of(old)]
    return copy_of(library.file, os.path.basename(library.path), changed)
