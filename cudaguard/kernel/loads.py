"""What of a load concerns the guard, and the loads of ctypes: the kernel asks before and after.

Of an extension's file the header, the names of what it needs and its own names are read; of what
has been mapped, the names of the files. Nothing is loaded for it and nothing changed.
"""

import os
import sys
from _operator import add  # light: `operator` is not

from cudaguard import kernel as base
from cudaguard.kernel import FLAGS, SYSTEM, failures, start_of, watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import Any

_open, _close, _listdir = SYSTEM.open, SYSTEM.close, SYSTEM.listdir
_seek, _stat, _access = SYSTEM.lseek, SYSTEM.stat, SYSTEM.access
_pread: "Any" = getattr(SYSTEM, "pread", None)  # Windows has neither
_confstr: "Any" = getattr(SYSTEM, "confstr", None)
_LIBRARIES = frozenset(watched.LIBRARIES)
_BROUGHT, _PARTS, _MAY_BE_GLOBAL = map(tuple, (watched.BROUGHT, watched.PARTS, watched.GLOBAL))
# Bring nothing that matters, and load nothing.
_OF_SYSTEM = ("libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "libgcc_s.so", "ld-")
_UNLIKE = (LookupError, TypeError, ValueError)  # of reading what is not as it should be
_CXX_RUNTIME, _OWN_RUNTIME = "libstdc++.so.6", b"2idE\0"  # how a variable of its names ends
_PARTS_OF = {_CXX_RUNTIME: b"13random_device", "libz.so.1": b"inflateResetKeep"}  # internals
_NEEDED, NAMESAKE = 1, "as another package does"
_RUN_PATH, _OLD_RUN_PATH = 29, 15  # the second where there is not the first
_START = 1 << 14  # bytes; headers and names of most extensions lie there
_MOST = 1 << 16  # of what is counted or read in one piece
_PAGE, _AT_BASE, _NO_ADDRESS = 1 << 12, 7, bytes(8)
_LOCKS = ([0, 0, 1, 0, 0], [0, 1, 0, 0, 0])  # end of a re-entrant one that is open, of 40, 48 bytes
_UNKNOWN = "a dynamic loader that is not known"
_PAST_US = "mapped past Python's importer"
_UNREADABLE = "a list of libraries that cannot be read"
TINY, HALF = sys.float_info.min, 0.5  # half of it has no place but among subnormal numbers
_copies: "dict[str, list[str]]" = {}  # see `copies_in_packages`
_known: "dict[tuple[int, ...], tuple[str, tuple[str, ...] | None]]" = {}  # files, see `judged`


class Loader:
    """What is known of the dynamic loader's list."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know nothing, as before the first look."""
        # Addresses of its structure (0: not found), of the global scope, of the first entry and of
        # the last one known; and how far in the structure it counts what it adds.
        self.place = self.scope = self.first = self.last = self.adds = 0
        # Returns what it counts: additions, libraries, members of the global scope, and where
        # these are listed; or nothing.
        self.counters: Callable[[], tuple[int, ...]] = _counters
        self.read: tuple[bytes, bytes, tuple[int, ...]] = (b"", b"", ())  # its places, and that
        # At the last look; and the entries of the global scope then.
        self.counted: tuple[int, ...] = ()
        self.members: frozenset[int] = frozenset()
        self.known: dict[int, bytes] = {}  # address of an entry -> how it begins
        self.paths: set[str] = set()  # of these, and of extensions that were let pass
        self.names: dict[str, str] = {}  # of the files of libraries -> the first path
        self.looked_at: set[str] = set()  # see `_namesake`
        self.crowding: set[str] = set()  # files that may take static TLS themselves
        self.takes_all = False  # the guard looks itself
        # The last one of these, if nothing else comes with it, and what is to be counted then.
        self.alone: ModuleSpec | None = None
        self.pending: tuple[int, ...] = ()


def watched_name(name: str) -> str:
    """Return the watched module that an extension is, or is part of; empty if there is none."""
    watched, package = base.kernel.watched, name
    while package and package not in watched:
        package = package.rpartition(".")[0] if "." in package else ""
    if "_v" in name:  # torch renames a rebuilt extension
        stem, _, number = name.rpartition("_v")
        return stem if stem in watched and number.isdigit() else package
    return package


def why_extension(spec: "ModuleSpec", name: str, file: str) -> str:
    """Return what concerns the guard in an extension that is about to be mapped, in words."""
    loader.alone, base.kernel.thread.precise = None, TINY * HALF > 0
    if watched_name(name):
        return f"extension {name}"
    if "ctypes" in sys.modules:
        base.watch_ctypes()  # it may have come past us
    if why := why_mapped(_PAST_US):
        return why
    why, _, is_alone = _judge(file)
    if why:
        return f"extension {name}, which {why}"
    if is_alone and file not in loader.paths:
        loader.paths.add(file)
        loader.alone = spec
        if loader.counted:
            loader.pending = (*map(add, loader.counted, (1, 1, 0, 0)),)
    return ""


def begins_to_flush() -> bool:
    """Return True if this thread flushes subnormal numbers to zero, and did not before its load."""
    return not TINY * HALF and getattr(base.kernel.thread, "precise", False)


def judged(path: str) -> "tuple[str, tuple[str, ...] | None]":
    """Return what the file of an extension has for the guard, in words, and what it needs.

    For most, no words. None where a closer look has to tell what it needs. Quick once known.
    """
    try:
        state = _stat(path)
        key = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
        if key not in _known:
            if len(_known) > 255:  # they may come and go
                _known.clear()
            _known[key] = _judge(path)[:2] if state.st_mode & 0xF000 == 0x8000 else ("", ())
        return _known[key]
    except failures():  # the loader has its own words
        return "", ()


def _judge(path: str) -> "tuple[str, tuple[str, ...] | None, bool]":
    """Return that, and whether nothing else that matters can be mapped together with it."""
    if sys.platform != "linux":
        return "is for Windows" if sys.platform == "win32" else "", (), False
    try:
        names, found = _read(path)
    except failures() as error:  # if it cannot be opened, the loader has its own words
        names, found = b"", None if isinstance(error, _UNLIKE) else []
    if found is None:
        return "is cut short, or unlike others", None, False
    needed, why, is_alone = (*found,), "", names > b"" and not names.partition(b"dlopen")[1]
    for name in needed:
        if name in watched.FIRST:
            if not why and _is_in_environment(name, path):
                why = f"needs {name}, of which there may be two copies"
        elif not name.startswith(_OF_SYSTEM):
            is_alone = False
            if name.startswith("libstdc++"):
                return f"needs {name}", None, False
            if not why and name.startswith(_BROUGHT):
                why = f"needs {name}"
    if not is_alone and (name := _namesake(path, needed)):
        return f"needs {name}, {NAMESAKE}", None, False
    if 90 in names and _OWN_RUNTIME in names and _CXX_RUNTIME not in needed:  # a "Z" is found fast
        return why or "has a C++ runtime of its own", None, is_alone
    for name, part in _PARTS_OF.items():
        if name in needed and part in names and not any(p.endswith(name) for p in loader.paths):
            return why or f"may have parts of {name}", None, is_alone
    return why or "takes static TLS" * (path in loader.crowding), needed, is_alone


def _namesake(path: str, needed: "tuple[str, ...]") -> str:
    """Return a library of its own folders that is there from elsewhere, and has other needs."""
    if loader.takes_all:
        why_mapped("")
    names, looked_at = list(needed), set()
    folders = run_path(path) if "-" in "".join(names) else ()
    for name in names:  # which grows
        for folder in folders if "-" in name else ():  # auditwheel has named it
            own = f"{folder}/{name}"
            if own not in loader.looked_at and own not in looked_at:
                looked_at.add(own)
                try:
                    mine, there = _read(own)[1] or [], loader.names.get(name)
                    if there is None:
                        names += mine
                    elif {*mine} - {*(_read(there)[1] or ())}:
                        return name
                except failures():  # it is not there, or no library
                    continue
    loader.looked_at |= looked_at
    return ""


def run_path(path: str) -> "list[str]":
    """Return the folders that a library names, in which what it needs is looked for."""
    try:
        _, found = _read(path, _RUN_PATH)
    except failures():
        return []
    folder = path.rpartition("/")[0]
    texts = (text.replace("$ORIGIN", folder).replace("${ORIGIN}", folder) for text in found or ())
    return [one or "." for text in texts for one in text.split(":")]  # as the loader


def _read(path: str, tag: int = _NEEDED) -> "tuple[bytes, list[str] | None]":
    """Return the names of an ELF file, and those of them that a tag gives.

    None if it is cut short, or not as this machine's loader maps them; or `_UNLIKE` is raised.
    """
    file = _open(path, FLAGS)
    try:
        start = _pread(file, _START, 0)
        there = len(start)
        size = _seek(file, 0, 2) if there == _START else there
        if start[:6] != b"\x7fELF\2\1" or start[54] != 56:
            return b"", None if start[:4] == b"\x7fELF" else []
        words = memoryview(start[: there & -8] if there & 7 else start).cast("Q")
        first = words[4] // 8  # of seven words about each segment
        end = first + 7 * start[56]
        kinds = start[8 * first : 8 * end : 56]  # the lowest byte of them
        # Most end with their table of sections.
        if words[5] + 64 * start[60] != size and size < max(
            map(add, words[first + 1 : end : 7], words[first + 4 : end : 7]), default=0
        ):
            return b"", None
        number = kinds.find(2)
        if number < 0 or 8 * end > there:
            return b"", [] if 8 * end <= there else None
        at = first + 7 * number
        place, size = words[at + 1], words[at + 4]
        tags, values, at = start[place : place + size : 16], words, place // 8
        if place + size > there:
            section = _pread(file, min(size, _MOST), place)
            tags, values, at = section[::16], memoryview(section).cast("Q"), 0
        address, size = values[at + 2 * tags.index(5) + 1], values[at + 2 * tags.index(10) + 1]
        places: Any = []
        flag = values[at + 2 * tags.index(30) + 1] & 0x10 if 30 in tags else 0  # DF_STATIC_TLS
        if 7 in kinds and (flag or start[18] == 183 or 0xF6 in tags):  # AArch64; descriptors
            loader.crowding.add(path)
        tag = _OLD_RUN_PATH if tag == _RUN_PATH and tag not in tags else tag
        number = -1
        while tag in tags[number + 1 :]:  # quick, where most have no more
            number = tags.find(tag, number + 1)
            if values[at + 2 * number] == tag:
                places.append(values[at + 2 * number + 1])
        for kind in kinds:
            offset = address - words[first + 2]
            if kind == 1 and 0 <= offset < words[first + 4]:
                place = words[first + 1] + offset
                if tag != _NEEDED:  # of all names only this one
                    place, size, places = place + sum(places[:1]), _PAGE, places and [0]
                names = start[place : place + size]
                if place + size > there:
                    names = _pread(file, min(size, _MOST << 8), place)
                return names, places and [
                    names[at : at + _PAGE].partition(b"\0")[0].decode("utf-8", "replace")
                    for at in places
                ]
            first += 7
    finally:
        _close(file)
    return b"", None


def _is_in_environment(name: str, path: str) -> bool:
    """Return True if a library is not mapped, and in a folder of the environment or of a file."""
    if name in loader.names or copies_in_packages(name):
        return name not in loader.names
    folders = {f"{sys.prefix}/lib", f"{sys.base_prefix}/lib", *run_path(path)}
    return any(one.startswith(name) for folder in folders for one in _names_in(folder))


def copies_in_packages(name: str) -> "list[str]":
    """Return the files of that name which installed packages have in their folders."""
    if name not in _copies:  # one call of the system for each package, once
        sites = [one for one in sys.path if isinstance(one, str) and one.endswith("-packages")]
        files = (f"{f}/{one}/{name}" for f in sites for one in _names_in(f) if "." not in one)
        _copies[name] = [file for file in files if _access(file, 0)]
    return _copies[name]


def _names_in(folder: str) -> "list[str]":
    try:
        return list(_listdir(folder))
    except failures():
        return []


def is_absent(error: OSError, name: str) -> bool:
    """Return True if a library is not there, and no program has set where to look too late."""
    if str(error) != f"{name}: cannot open shared object file: No such file or directory":
        return False
    said = os.environ.get("LD_LIBRARY_PATH", "")
    if not said or os.sep in name:
        return True
    return f"\0LD_LIBRARY_PATH={said}\0".encode() in b"\0" + start_of("/proc/self/environ")


# --- What the dynamic loader has mapped -----------------------------------------------------------


def _find() -> str:
    """Find where the loader counts what it does; return why that cannot be had, in words.

    Its structure is private, and read as glibc's is for 64 bits: the name spaces, the first with
    its entry, its number of libraries and the global scope; behind them locks, and the number of
    all that was ever added. It lies in the part of the loader that can be written to. Elsewhere,
    the guard has to look in its own way.

    Source: ``rtld_global`` in glibc's ``sysdeps/generic/ldsodefs.h``; ``getauxval(3)``.
    """
    memory, unknown = -1, ""
    try:
        if not _confstr or not (_confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return ""
        unknown = _UNKNOWN
        vector = _words(start_of("/proc/self/auxv"))
        there = dict(zip(vector[::2], vector[1::2])).get(_AT_BASE, 0)
        memory = _open("/proc/self/mem", FLAGS)
        if there:
            words = _words(_pread(memory, _PAGE, there))
            table = words[words[4] // 8 :][: 7 * (words[7] & 0xFFFF)]
            parts = zip(table[::7], table[2::7], table[4::7])
            _, at, size = max(part for part in parts if part[0] % 2**32 == 1)  # the last one
            loader.place = _found_in(memory, there + at, min(size, _MOST))
    except failures():  # another C library does not know the question; or there is no /proc
        pass
    finally:
        if memory >= 0:
            _close(memory)
    return "" if loader.place else unknown


def _words(data: bytes) -> "list[int]":
    return memoryview(data)[: len(data) // 8 * 8].cast("Q").tolist()


def _found_in(memory: int, start: int, size: int) -> int:
    """Return where in some memory the loader's structure is; 0 if it is not."""
    words = _words(_pread(memory, size, start))
    for at, (first, count, scope) in enumerate(zip(words, words[1:], words[2:])):
        if first < scope < first + 2048 and 0 < count < _MOST and not first % 16:
            try:
                # The entry of the program is the first one, and stands for no other.
                if _words(_pread(memory, 48, first))[4:] != [0, first]:
                    continue
            except failures():  # no address
                continue
            for adds in range(at + 40, min(at + 420, len(words))):
                is_number = count <= words[adds] < count + _MOST
                if is_number and words[adds - 5 : adds] in _LOCKS:
                    loader.first, loader.scope, loader.adds = first, scope, 8 * (adds - at)
                    return start + 8 * at
    return 0


def _counters() -> "tuple[int, ...]":
    """Return the counters through the kernel, as long as nobody has imported ctypes."""
    try:
        memory = _open("/proc/self/mem", FLAGS)
        try:
            head = _pread(memory, loader.adds + 8, loader.place)
            scope = _pread(memory, 16, loader.scope)
        finally:
            _close(memory)
    except failures():
        return ()
    known, known_scope, numbers = loader.read
    if head != known or scope != known_scope:
        words = memoryview(head).cast("Q")
        place, size = numbers[3:1:-1] if scope == known_scope else memoryview(scope).cast("Q")
        numbers = words[-1], words[1], size & 0xFFFFFFFF, place
        loader.read = head, scope, numbers
    return numbers


def why_mapped(how: str) -> str:
    """Look at what the loader has added; return what of it concerns the guard, in words.

    What does is not taken note of: to the guard it is new, too. At the first look all is looked at
    that is there, and what of it is global. `how` follows the name of a library.
    """
    if not loader.place:
        why = _find()
        if not loader.place:  # what can be done, the guard does once the program has ctypes
            return why if base.has_ctypes() else ""
    before, now = loader.counted, loader.counters()
    pending, loader.pending = loader.pending, ()
    if not now or now == before:
        return "" if now else _UNREADABLE
    if now == pending or (now[1:] == before[1:] and _is_at_end()):  # its own; or come and gone
        loader.counted = now
        return ""
    # Behind the last one, if that is still there; all, if others are gone.
    is_whole = now[2:] != before[2:]
    found = _why_new(how, now, is_whole=is_whole)
    return (_why_new(how, now, is_whole=True) if found is None else found) or ""


def has_news() -> bool:
    """Return True if what has been mapped concerns a detector, or if that is not known."""
    return bool(why_mapped("mapped")) or (not loader.place and base.has_ctypes())


def look_after(how: str, what: object, tell: "Callable[[Any], None]") -> None:
    """Look at what a load has brought that was let pass, and have the guard told if need be."""
    try:
        how = f"{how} {getattr(what, 'name', what)}"
        why = why_mapped(how) if base.may_wake() else "a load within another one"
        if not why and begins_to_flush():
            why = f"arithmetic changed by what is {how}"
        if why and (base.kernel.asked or base.kernel.core):
            tell(base.wake(why))
    except base.contained():
        return


def _is_at_end() -> bool:
    """Return True if there is nothing behind the last entry known."""
    try:
        memory = _open("/proc/self/mem", FLAGS)
        try:
            data: bytes = _pread(memory, 32, loader.last)
        finally:
            _close(memory)
        return data == loader.known[loader.last] + _NO_ADDRESS
    except failures():  # it has gone
        return False


def _why_new(how: str, now: "tuple[int, ...]", *, is_whole: bool) -> "str | None":
    """Do so for all entries or those behind the last one known; None if that does not tell all."""
    before, known, members = loader.counted, loader.known, loader.members
    is_from_start = not before
    found: dict[int, bytes] = {}
    memory, last, entry = -1, 0, loader.first
    try:
        memory = _open("/proc/self/mem", FLAGS)
        if is_whole and now[2:] != before[2:]:
            members = frozenset(_words(_pread(memory, 8 * now[2], now[3])))
        if not is_whole:
            last = loader.last
            data = _pread(memory, 32, last)
            if data[:24] != known[last]:
                return None
            entry = int.from_bytes(data[24:], "little")
        while entry:
            data = _pread(memory, 40, entry)
            _, text, _, following, previous = memoryview(data).cast("Q").tolist()
            if len(found) > _MOST or previous != last:
                return _UNREADABLE
            found[entry] = data[:24]
            is_new = known.get(entry) != data[:24]
            if is_new or (entry in members and entry not in loader.members):
                path = _path_at(memory, text)
                loader.paths.add(path)
                _, slash, name = path.rpartition("/")
                loader.names.setdefault(name, path)
                # What the program was started with was mapped before all else: no extension.
                is_library = name.startswith(("lib", "ld-")) and entry in members
                is_from_start &= is_library or not slash
                is_meant = is_from_start or not name or name.startswith(_MAY_BE_GLOBAL)
                is_meant |= entry not in members
                if not loader.takes_all and (_concerns(name) or not is_meant):
                    return f"{name}, {how}" if is_meant else f"{name}, which is global, {how}"
            last, entry = entry, following
    except failures():  # another thread has changed it meanwhile, or the last one is gone
        return _UNREADABLE if is_whole else None
    finally:
        if memory >= 0:
            _close(memory)
    if is_whole:
        loader.known = found
        loader.paths = loader.paths if len(loader.paths) < _MOST else set()  # of those that go
    elif len(known) + len(found) != now[1]:
        return None
    else:
        known.update(found)
    loader.last, loader.members, loader.counted = last, members, now
    return ""


def _path_at(memory: int, place: int) -> str:
    """Return the path that stands there."""
    path = _pread(memory, min(4096 - place % 4096, 512), place) if place else b"\0"
    if b"\0" not in path:
        path += _pread(memory, 4096, place + len(path))
    return path[: path.find(b"\0")].decode("utf-8", "replace")


def _concerns(name: str) -> bool:
    """Return True for a library that a detector knows; its name may have a mark of auditwheel."""
    stem, so, _ = name.partition(".so")
    first, _, _ = stem.rpartition("-")
    return bool(so) and (stem in _LIBRARIES or first in _LIBRARIES or stem.startswith(_PARTS))


loader = Loader()


# --- ctypes ---------------------------------------------------------------------------------------


def watch(ctypes: "Any") -> str:
    """Watch what a ctypes loads; return what of all that is mapped concerns the guard, in words."""
    cdll = _class_of(ctypes)
    if any(stand_in.owner is cdll for stand_in in base.kernel.stand_ins):
        return ""
    if cdll is not None:
        _patch_ctypes(cdll, vars(ctypes).get("DEFAULT_MODE", 0))
    why = why_mapped("there before")
    if loader.place:  # from now on without a call of the system
        number, place = ctypes.c_uint.from_address, ctypes.c_size_t.from_address(loader.scope)
        a, b, c = map(number, (loader.place + loader.adds, loader.place + 8, loader.scope + 8))
        loader.counters = lambda: (a.value, b.value, c.value, place.value)
    return why


def _class_of(ctypes: "Any") -> "Any":
    """Return the class of ctypes itself, whatever a program has put in its place."""
    there = [one for one in map(vars(ctypes).get, ("CDLL", "PyDLL")) if type(one) is type]
    classes = (one for lowest in there for one in lowest.__mro__)
    return next((c for c in classes if c.__name__ == "CDLL" and c.__module__ == "ctypes"), None)


def _patch_ctypes(cdll: "Any", default_mode: int) -> None:
    stand_in = base.StandIn("ctypes.CDLL.__init__", cdll, "__init__")
    original = stand_in.original
    contained, hide_frame = base.contained, base.hide_frame  # there also when Python ends

    # The name and the arguments of the original: they are in the errors of bad calls.
    def __init__(  # noqa: N807
        self: object,
        name: "Any",
        mode: int = default_mode,
        handle: "Any" = None,
        use_errno: "Any" = False,
        use_last_error: "Any" = False,
        winmode: "Any" = None,
    ) -> None:
        try:
            is_installed = base is not None and stand_in.is_installed and name is not None is handle
            is_asleep = is_installed and base.may_wake()
            core = base.core_for(_why_library, name, mode) if is_installed else None
            load = core and core.ctypes.load
        except contained():
            is_asleep, load = False, None
        args = name, mode, handle, use_errno, use_last_error, winmode
        try:
            if load is None:
                try:
                    original(self, *args)
                except OSError as error:
                    core = base.core_for(_why_refused, original, error, name) if is_asleep else None
                    load = core and core.ctypes.load
                    if load is None:
                        raise
            if load is not None:
                load(original, self, *args)
                return
        except BaseException as error:
            hide_frame(error)
            raise
        if is_asleep:
            look_after("loaded by ctypes as", name, lambda core: core.ctypes.ended(name, mode))

    stand_in.put(__init__)


def _why_refused(original: "Any", error: OSError, name: str) -> str:
    """Return that a library has just been refused, in words; nothing if it is simply not there."""
    step = base.TRACEBACK.__get__(error)
    while step.tb_next is not None:
        step = step.tb_next
    file = getattr(getattr(original, "__code__", None), "co_filename", "")
    is_own = step.tb_frame.f_code.co_filename == file and error.args  # and of no signal handler
    return f"{name}, which was refused to ctypes" if is_own and not is_absent(error, name) else ""


def _why_library(name: "Any", mode: "Any") -> str:
    """Return what concerns the guard in a library that ctypes is about to load, in words."""
    base.kernel.thread.precise = TINY * HALF > 0
    if type(name) is not str or type(mode) is not int:
        return "a library with an unusual name or mode, loaded by ctypes"
    if mode & base.RTLD_GLOBAL:
        return f"{name}, which ctypes makes global"
    if name.startswith(_BROUGHT):
        return f"{name}, loaded by ctypes"
    why, _ = judged(name) if os.sep in name else ("", ())
    # What has a runtime of its own concerns extensions alone.
    is_meant = name.endswith(_CXX_RUNTIME) or why.startswith(("is", "needs", "may", "takes"))
    return f"{name}, which {why}" if is_meant else why_mapped(_PAST_US)
