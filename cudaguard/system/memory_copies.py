"""Libraries in memory: copies of which some bytes are changed, and one that needs others.

Source: ``memfd_create(2)``.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from cudaguard.elf import reader as elf
from cudaguard.elf.process import uses_glibc
from cudaguard.files import matches, os, own_errors, read_start
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.runtimes import GLOBAL_ON_PURPOSE, stem_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.elf.reader import ElfFile
    from cudaguard.elf.resident import Resident
    from cudaguard.elf.symbols import SharedObject

_LARGEST_COPY = 1 << 27  # bytes that are mapped of a library: they are copied, and stay
# Who asks for these may look for files beside its own, and a copy lies nowhere.
_ASKS_WHERE = frozenset((b"dladdr", b"dladdr1", b"dlinfo"))
_OF_UNWINDER = b"dl_iterate_phdr"  # so calls one that is linked in


def why_no_room(file: ElfFile) -> str:
    """Return why no library can be copied into memory here; empty if it can."""
    if not uses_glibc():
        return "this C library is not glibc"
    if file.mapped_size > _LARGEST_COPY:
        return f"it has more than {_LARGEST_COPY >> 20} MB"
    lines = read_start("/proc/self/limits", 1 << 12).splitlines()
    if not any(line.startswith(b"Max file size") and b"unlimited" in line for line in lines):
        return "the size of files is limited"
    return ""


def why_no_copy(file: ElfFile, symbols: SharedObject) -> str:
    """Return why a copy of a library would not do; empty if it does."""
    why = why_no_room(file)
    called = {symbol.name for symbol in symbols.wanted()}
    asking = called & _ASKS_WHERE
    if "libgcc_s.so.1" in file.needed:
        asking |= called & {_OF_UNWINDER}
    if asking and not why:
        return f"it calls {min(asking).decode()}(), and may look for files beside its own"
    return why


def copy_of(file: ElfFile, name: str, changed: Iterable[tuple[int, int]]) -> int:
    """Return the descriptor of a copy with other bytes at some places; or an OSError is raised."""
    copy = os.memfd_create(name[:200])
    try:
        if copy <= 2:  # errors would be written into it
            raise OSError("no standard input, output or error is open")
        file.copy_mapped(copy)
        for place, byte in changed:
            os.pwrite(copy, bytes((byte,)), place)
    except BaseException:
        os.close(copy)
        raise
    return copy


def path_of_copy(copy: int) -> str:
    """Return an unused path: the loader returns what it has already mapped by a path."""
    return f"/proc/self/{'./' * next(_numbers)}fd/{copy}"


_numbers = iter(range(1 << 30))


def open_copy(copy: int, flags: int = 0, data: bytes = b"") -> str:
    """Have the loader map a copy, and close it; an OSError says why it is refused.

    Return the path by which it is found again. The `data` are written into it before.
    """
    import _ctypes

    path = path_of_copy(copy)
    try:
        os.pwrite(copy, data, 0)
        _ctypes.dlopen(path, flags | os.RTLD_NOW)
    finally:
        os.close(copy)
    return path


def open_together(
    file: ElfFile, names: Iterable[str], folders: Iterable[str] = (), flags: int = 0
) -> str:
    """Open libraries by their names or paths; an OSError says why one is refused.

    By its path, one without a soname would not be found by its name later. So a library for the
    machine of `file` is made in memory that needs them, from their folders; return the path by
    which it is found again. Source: ``elf(5)``.
    """
    from struct import pack

    texts = [b"", os.fsencode(":".join(folders)), *map(os.fsencode, names)]
    _, runpath, *needed = [sum(len(text) + 1 for text in texts[:i]) for i in range(len(texts))]
    strings, begin = b"\0".join((*texts, b"")), 64 + 3 * 56
    size = 16 * (len(needed) + 5)
    tags = [(elf.DT_RUNPATH, runpath), *((elf.DT_NEEDED, start) for start in needed)]
    tags += [(elf.DT_STRTAB, begin + size), (elf.DT_SYMTAB, 0), (elf.DT_STRSZ, len(strings))]
    parts = [(1, 0, size + begin + len(strings)), (2, begin, size), (0x6474E551, 0, 0)]
    image = file.header[:24] + pack("<QQQ", 0, 64, 0) + file.header[48:52]
    image += pack("<6H", 64, 56, len(parts), 0, 0, 0)
    for kind, start, length in parts:  # PT_LOAD, PT_DYNAMIC, PT_GNU_STACK; to read and write
        image += pack("<IIQQQQQQ", kind, 6, start, start, start, length, length, 1 << 16)
    image += b"".join(pack("<QQ", *tag) for tag in (*tags, (0, 0))) + strings
    return open_copy(os.memfd_create("cudaguard-names"), flags, image)


# --- A library with files of its own package, where others came first by their names --------------

copy_paths: dict[str, str] = {}  # files -> the paths by which copies of them were mapped here
_renamed: dict[str, str] = {}  # files -> the names that their copies in this process have
_FIRST_LETTERS = b"LMNOPQRSTUVWXYZ"  # of new names, in place of a small one


def keep_apart(library: str, *, is_refused: bool) -> str:
    """Map a library with the files that it leads to, where others came first by their names.

    Of one that was refused, what lacks something gets another file, with all that lies beside that;
    else what needs other libraries than its own file does. Return what was done, in words, and have
    the path to be used in `copy_paths`; nothing is done where that would not help.
    """
    try:
        with ExitStack() as opened:
            return _keep_apart(library, opened, is_refused=is_refused)
    # The loader has its own words.
    except own_errors(OSError, AttributeError, ImportError, StopIteration):
        return ""


def _keep_apart(library: str, opened: ExitStack, *, is_refused: bool) -> str:
    from cudaguard.elf.forecast import Forecast, Load
    from cudaguard.elf.resident import Resident

    resident = opened.enter_context(Resident())
    own: dict[str, str] = {}  # name -> the file that this package has
    more, there, folders = {"": ""}, "", set()
    while more:
        root = opened.enter_context(elf.ElfFile(library))
        found_by = {name: _renamed.get(file, file) for name, file in own.items()}
        load = Load(library, root, resident, opened, own=found_by)
        if is_refused:
            found = load.forecast(None)
        else:
            found = Forecast(library, libraries=(*load.map_libraries(),))
        lacking = {lack.library for lack in (*found.versions, *found.symbols)}
        new = [one for one in load.objects if one.is_new]
        hidden = [pair for one in new for pair in load.hidden(one)]
        hidden.sort(key=lambda pair: pair[2] not in lacking)
        folders |= {os.path.dirname(mine.path) for _, mine, other in hidden if other in lacking}
        more = {}
        for name, mine, other in hidden:
            needs, folder = {*mine.file.needed}, os.path.dirname(mine.path)
            is_meant = folder in folders if is_refused else needs - {*elf.read_elf(other).needed}
            if is_meant and name not in more and not _is_shared(name, mine.file, other):
                more[name], there = mine.path, there or other
        own.update(more)
    names = {name: _renamed.get(file) or _unused(name, resident) for name, file in own.items()}
    copied = [o for o in new if o.path in own.values() or names.keys() & {*o.file.needed}]
    why = [why_no_copy(one.file, one.symbols) for one in copied]
    if not (own and found.is_fine and all(names.values())) or any(why):
        return ""
    files = []  # all that the loader would use, in its order
    for one in dict.fromkeys((load.objects[0], *load.served.values())):
        if one in copied:
            file = one.file
            changed = [(p, ord(to[0])) for old, to in names.items() for p in file.places_of(old)]
            copy = copy_of(file, os.path.basename(one.path), changed)
            opened.callback(os.close, copy)
            files.append(path_of_copy(copy))
        elif one is not None:
            files.append(resident.path(one) if isinstance(one, int) else one.path)
    flags = sys.getdlopenflags() & os.RTLD_DEEPBIND  # CG812
    copy_paths[library] = open_together(root, files, flags=flags)
    _renamed.update((file, names[name]) for name, file in own.items())
    return f"gets its own {', '.join(own)}, not that of {os.path.dirname(os.path.abspath(there))}"


def _is_shared(name: str, file: ElfFile, other: str) -> bool:
    """Return True if a process should have one of two copies, or of an object in both."""
    # A file whose package gave it another name, as torch its libgomp, is not meant for others.
    is_own = os.path.basename(other).startswith(f"{name.partition('.so')[0]}-")
    if stem_of(name) or (matches(name, GLOBAL_ON_PURPOSE) and not is_own):
        return True
    with elf.ElfFile(other) as opened:  # STB_GNU_UNIQUE
        return not {name for _, name in file.unique()}.isdisjoint(n for _, n in opened.unique())


def _unused(name: str, resident: Resident) -> str:
    """Return a name of the same length that no library has; empty if there is none."""
    names = (chr(letter) + name[1:] for letter in _FIRST_LETTERS)
    return next((other for other in names if not resident.handle(other)), "")
