"""What of a load concerns the guard: asked by the kernel, before and after each.

Of an extension's file the header, the names of what it needs and its own names are read; of what
has been mapped, the names of the files. Nothing is loaded for it and nothing changed.
"""

import os
import sys

from cudaguard.kernel import FLAGS, SYSTEM, failures, start_of, watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_open, _close, _listdir = SYSTEM.open, SYSTEM.close, SYSTEM.listdir
_fstat, _stat = SYSTEM.fstat, SYSTEM.stat
_pread: "Any" = getattr(SYSTEM, "pread", None)  # Windows has neither
_confstr: "Any" = getattr(SYSTEM, "confstr", None)
_LIBRARIES = frozenset(watched.LIBRARIES)
_BROUGHT, _PARTS, _MAY_BE_GLOBAL = map(tuple, (watched.BROUGHT, watched.PARTS, watched.GLOBAL))
_START = 1 << 14  # bytes; headers and names of most extensions lie there
_MOST = 1 << 16  # of what is counted or read in one piece
_MOST_WHOLE = 256
_UNREADABLE = "a list of libraries that cannot be read"


class Loader:
    """What is known of the dynamic loader's list."""

    def __init__(self) -> None:
        # What it counts: additions, libraries, members of the global scope. None: not found.
        self.counters: Callable[[], tuple[int, ...]] | None = None
        self.counted: tuple[int, ...] = ()  # at the last look
        # Returns the entries of the global scope.
        self.members: Callable[[], Sequence[int]] = tuple
        self.first = self.last = 0  # addresses of the first entry, and of the last one known
        self.known: dict[int, bytes] = {}  # address of an entry -> how it begins


loader = Loader()
_whole: "set[tuple[int, ...]]" = set()  # files of which all is there


# --- Files ----------------------------------------------------------------------------------------


def why_file(path: str) -> str:
    """Return what the file of an extension has for the guard, in words; empty for most."""
    if sys.platform != "linux":
        return ""
    try:
        file = _open(path, FLAGS)
    except failures():  # the loader has its own words
        return ""
    try:
        start = _pread(file, _START, 0)
        headers, end = _headers(start)
        if end > _fstat(file).st_size:
            return "is cut short, or unlike others"

        def at(place: int, length: int) -> bytes:
            is_there = place + length <= len(start)
            found: bytes = b"" if is_there else _pread(file, min(length, _MOST << 8), place)
            return start[place : place + length] if is_there else found

        dynamic = [one for one in headers if one[0] & 0xFFFFFFFF == 2]
        if not dynamic:
            return ""
        section = at(dynamic[-1][1], min(dynamic[-1][4], _MOST))
        words = memoryview(section)[: len(section) // 16 * 16].cast("Q").tolist()
        tags, values = words[::2], words[1::2]
        if not {0, 5, 10} <= set(tags):
            return "is unlike others"
        table, size = values[tags.index(5)], values[tags.index(10)]
        loads = [one for one in headers if one[0] & 0xFFFFFFFF == 1]
        place = [one[1] + table - one[2] for one in loads if one[2] <= table < one[2] + one[4]]
        names = at(place[0], size) if place else b""
    finally:
        _close(file)
    places = [value for tag, value in zip(tags[: tags.index(0)], values) if tag == 1]
    texts = [names[place : names.find(b"\0", place)] for place in places]
    needed = [text.decode("utf-8", "replace") for text in texts]
    for name in needed:
        if name.startswith(_BROUGHT):
            return f"needs {name}"
        if name in watched.FIRST and _is_in_environment(name):
            return f"needs {name}, which the environment has"
    is_odd = b"2idE\0" in names and "libstdc++.so.6" not in needed
    return "has a C++ runtime of its own" if is_odd else ""


def _headers(start: bytes) -> "tuple[list[list[int]], int]":
    """Return the program headers of an ELF file, as words, and where the file has to end.

    Beyond all files if they are not as the loader's of this machine are; nothing of other files.
    """
    if start[:4] != b"\x7fELF":
        return [], 0
    place, count = int.from_bytes(start[32:40], "little"), int.from_bytes(start[56:58], "little")
    table = start[place : place + 56 * count]
    if start[4:6] != b"\2\1" or start[54:56] != b"\x38\0" or len(table) != 56 * count:
        return [], sys.maxsize
    words = memoryview(table).cast("Q").tolist()
    headers = [words[i : i + 7] for i in range(0, 7 * count, 7)]
    ends = [one[1] + one[4] for one in headers if one[0] & 0xFFFFFFFF == 1 and one[4]]
    return headers, max(ends, default=0)


def _is_in_environment(name: str) -> bool:
    """Return True if the folder of Python's environment has a library of that name."""
    for folder in (f"{sys.prefix}/lib", f"{sys.base_prefix}/lib"):
        try:
            if any(one.startswith(name) for one in _listdir(folder)):
                return True
        except failures():
            continue
    return False


def is_absent(error: OSError, name: str) -> bool:
    """Return True if a library is not there, and no program has set where to look too late."""
    if str(error) != f"{name}: cannot open shared object file: No such file or directory":
        return False
    said = os.environ.get("LD_LIBRARY_PATH", "")
    if not said or os.sep in name:
        return True
    try:
        return f"\0LD_LIBRARY_PATH={said}\0".encode() in b"\0" + start_of("/proc/self/environ")
    except failures():
        return True


def is_cut_short(path: str) -> bool:
    """Return True for a library whose file ends too early, or that is unlike others."""
    try:
        state = _stat(path)
        key = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
        if key in _whole or sys.platform != "linux" or state.st_mode & 0xF000 != 0x8000:
            return False
        file = _open(path, FLAGS)
        try:
            start = _pread(file, _START, 0)
        finally:
            _close(file)
    except failures():
        return False
    if _headers(start)[1] > state.st_size:
        return True
    if len(_whole) >= _MOST_WHOLE:
        _whole.clear()
    _whole.add(key)
    return False


# --- What the dynamic loader has mapped -----------------------------------------------------------


def find_counters(ctypes: "Any") -> str:
    """Find where the loader counts what it does; return why that cannot be had, in words.

    Its structure is private, and read as glibc's is for 64 bits: the name spaces, the first with
    its entry, its number of libraries and the global scope; behind them locks, and the number of
    all that was ever added. Elsewhere, the guard has to look in its own way.

    Source: ``rtld_global`` in glibc's ``sysdeps/generic/ldsodefs.h``.
    """
    if not _confstr or not (_confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
        return ""
    try:
        place = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_rtld_global"))
        words = (ctypes.c_size_t * 420).from_address(place)[:]
    except (AttributeError, ValueError):  # a static program
        words = [0] * 420
    count, lock = words[1] & 0xFFFFFFFF, [0, 0, 1, 0, 0]
    adds = [
        at
        for at in range(40, 420)
        if words[at - 5 : at] == lock and count <= words[at] < count + _MOST
    ]
    first, scope = words[0], words[2]
    if not adds or first != ctypes.pythonapi._handle or not first < scope < first + 2048:
        return "a dynamic loader that is not known"
    number = ctypes.c_uint.from_address
    a, b, c = number(place + 8 * adds[0]), number(place + 8), number(scope + 8)
    loader.counters = lambda: (a.value, b.value, c.value)
    loader.first = first
    members = ctypes.c_size_t.from_address(scope)
    loader.members = lambda: (ctypes.c_size_t * c.value).from_address(members.value)[:]
    return ""


def why_mapped(how: str) -> str:
    """Look at what the loader has added; return what of it concerns the guard, in words.

    What does is not taken note of: to the guard it is new, too. At the first look all is looked at
    that is there, and what of it is global.

    Args:
        how: Follows the name of a library.
    """
    if loader.counters is None:
        return ""
    before, now = loader.counted, loader.counters()
    if now == before:
        return ""
    if before and now[2] > before[2]:
        return f"a library that was made global, {how}"
    is_whole = not before or now[0] - now[1] != before[0] - before[1]  # something was unloaded
    members = () if before else loader.members()
    found: dict[int, bytes] = {}
    last, entry = 0, loader.first
    memory = -1
    try:
        memory = _open("/proc/self/mem", FLAGS)
        if not is_whole:
            last = loader.last
            entry = int.from_bytes(_pread(memory, 8, last + 24), "little")
        while entry:
            data = _pread(memory, 40, entry)
            _, text, _, following, previous = memoryview(data).cast("Q").tolist()
            if len(found) > _MOST or previous != last:
                return _UNREADABLE
            found[entry] = data[:24]
            if loader.known.get(entry) != data[:24]:
                name = _name_at(memory, text)
                is_odd = entry in members and name and not name.startswith(_MAY_BE_GLOBAL)
                if is_odd or _concerns(name):
                    return f"{name}, {how}"
            last, entry = entry, following
    except failures():  # another thread has changed it meanwhile
        return _UNREADABLE
    finally:
        if memory >= 0:
            _close(memory)
    if is_whole:
        loader.known = found
    else:
        loader.known.update(found)
    loader.last, loader.counted = last, now
    return ""


def _name_at(memory: int, place: int) -> str:
    """Return the name of the file whose path stands there."""
    path = _pread(memory, min(4096 - place % 4096, 512), place) if place else b"\0"
    if b"\0" not in path:
        path += _pread(memory, 4096, place + len(path))
    return path[: path.find(b"\0")].rpartition(b"/")[2].decode("utf-8", "replace")


def _concerns(name: str) -> bool:
    """Return True for a library that a detector knows; its name may have a mark of auditwheel."""
    stem, so, _ = name.partition(".so")
    first, _, _ = stem.rpartition("-")
    return bool(so) and (stem in _LIBRARIES or first in _LIBRARIES or stem.startswith(_PARTS))
