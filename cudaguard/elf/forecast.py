"""Tells from files whether the dynamic loader would load an extension.

The steps are the loader's own: the file, the libraries it needs and theirs, the versions of
symbols, the symbols. Nothing is loaded for it.
"""

from __future__ import annotations

from contextlib import ExitStack

from cudaguard.elf.process import identity, uses_glibc
from cudaguard.elf.reader import PT_DYNAMIC, PT_GNU_STACK, STEP, ElfFile, UnreadableError
from cudaguard.elf.search_path import DT_FLAGS_1, Place, SearchPath, machine_of, own_machine
from cudaguard.elf.symbols import SharedObject, Wanted
from cudaguard.files import os, own_errors, read_start
from cudaguard.model import TYPE_CHECKING, NamedTuple, Record, lazy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cudaguard.elf.resident import Resident

    # The files that have the symbols which a library asks for, as `identity` tells them.
    Settled = frozenset[object]

# --- The vocabulary of compiled extensions: would one load, and if not, what is missing -----------


class ExtensionCheck(Record):
    """Whether an extension would load, and why not.

    Args:
        ok: True, False, or None where that cannot be said.
        path: The file.
        cause: Why not: one of ``truncated``, ``not-elf``, ``wrong-machine``,
            ``torch-not-imported``, ``torch-flavor``, ``cuda-major``, ``library-missing``,
            ``symbol-version``, ``python-abi``, ``numpy-abi``, ``executable-stack``,
            ``older-library``, ``cuda-not-linked``, ``cxx11-abi``, ``other-torch``,
            ``own-source-missing`` and ``unknown``; None where `ok` is True.
        message: The same in words; empty where `ok` is True.
        missing_symbols: Pairs of a name that no library defines: mangled, as in the file, and
            readable, as in the source. All of them: where libraries are missing, what these would
            define as well.
        missing_libraries: Libraries that the loader would not find.
        remedy: What to do.
    """

    ok: bool | None
    path: str
    cause: str | None = None
    message: str = ""
    missing_symbols: tuple[tuple[str, str], ...] = ()
    missing_libraries: tuple[str, ...] = ()
    remedy: str = ""

    def __str__(self) -> str:
        """Return one line: the file, and what is wrong with it."""
        words = {True: "would load", False: "would not load", None: "cannot be judged"}[self.ok]
        details = ". ".join(text.rstrip(".") for text in (self.message, self.remedy) if text)
        return f"{self.path}: {words}{f' ({self.cause}). {details}.' if self.cause else ''}"


class Lack(NamedTuple):
    """Something that an object needs and would not get."""

    name: str  # a library, a symbol, or a version of symbols
    needed_by: str  # the file that asks for it
    # the file that lacks it, or its name: for a version, and for a symbol of a library that
    # `needed_by` names
    library: str = ""


class Forecast(NamedTuple):
    """What the dynamic loader would meet, read from the files and from this process."""

    path: str
    # what is wrong with the file itself: ``truncated``, ``not-elf``, ``wrong-machine``, or
    # ``unknown`` where it cannot be judged; otherwise empty
    problem: str = ""
    detail: str = ""  # that problem in a few words
    needed: tuple[str, ...] = ()  # the libraries that the extension names
    # those of the extension, and of what it brings, that are found nowhere
    libraries: tuple[Lack, ...] = ()
    versions: tuple[Lack, ...] = ()  # versions that a library which is there does not have
    # symbols that no library defines, of those that are there: where some are missing, theirs are
    # among them
    symbols: tuple[Lack, ...] = ()

    @property
    def is_fine(self) -> bool:
        """True if nothing keeps the loader from loading it."""
        return not (self.problem or self.libraries or self.versions or self.symbols)


class Surroundings(NamedTuple):
    """What extensions are built for here, read without importing torch."""

    python: str  # version of this interpreter, as in ``3.11``
    is_imported: bool = False  # True if torch is imported, or to be taken for that
    torch: str = ""  # version of the torch that is imported or installed; empty if there is none
    # the CUDA version that it is built for, as in ``12.4``; empty for a build without
    cuda: str = ""
    # True if it is built with the old C++ ABI; None if that cannot be told
    old_strings: bool | None = None
    torch_libraries: frozenset[str] = frozenset()  # the files in its own folder of libraries


_MOST_FILES = 256  # to be open at once
_MOST_LACKS = 1 << 16
_IS_PROGRAM, _NOT_FOR_DLOPEN = 0x08000000, 0x40
_SHARED = b"\x03\0"  # e_type
_MAGIC = b"\x7fELF"
_MACHINES = {3: "x86", 8: "MIPS", 21: "PowerPC", 22: "S/390", 40: "ARM", 62: "x86-64",
             183: "AArch64", 243: "RISC-V", 258: "LoongArch"}  # fmt: skip


def forecast(
    path: str, given: Iterable[str] = (), settled: dict[object, Settled] | None = None
) -> Forecast:
    """Tell what the loader would meet if it loaded an extension now.

    Files that are `given`, and what they need, are taken for loaded already. `settled`, which is
    added to, are libraries that lack no symbol, and symbols that a library has, for many forecasts
    while nothing changes; one is looked at again where not all of the files that have it are there.
    Then no symbols are looked for where a library is missing.
    """
    path = os.path.abspath(path)
    try:
        with ExitStack() as opened:
            file = opened.enter_context(ElfFile(path))
            problem, detail = problem_of(file)
            if problem:
                return Forecast(path, problem, detail)
            if not uses_glibc():
                return Forecast(path, "unknown", "this C library is not glibc", file.needed)
            from cudaguard.elf.resident import Resident

            resident = opened.enter_context(Resident())
            if resident.handle(path):
                return Forecast(path, needed=file.needed)
            return Load(path, file, resident, opened, given).forecast(settled)
    except own_errors(OSError, AttributeError, ImportError) as error:
        return Forecast(path, "unknown", f"{type(error).__name__}: {error}")


def problem_of(file: ElfFile) -> tuple[str, str]:
    """Return what is wrong with a file by itself, as a cause and in words; empty if nothing is."""
    if not (header := file.header):
        return "truncated", "it is empty"
    if header[:4] != _MAGIC[: len(header)]:
        return "not-elf", "it is not an ELF file"
    if len(header) < 64:
        return "truncated", f"it has {len(header)} bytes"
    if machine_of(header) != own_machine():
        own = _machine(read_start("/proc/self/exe", 64))
        return "wrong-machine", f"it is for {_machine(header)}, this is {own}"
    if file.is_truncated:
        return "truncated", "it ends before the parts that its headers name"
    flags = file.value(DT_FLAGS_1)
    if header[16:18] != _SHARED or flags & _IS_PROGRAM:
        return "not-elf", "it is an ELF file, but not a shared library"
    if not any(kind == PT_DYNAMIC and size for kind, _, _, _, size, _ in file.segments):
        return "not-elf", "it is an ELF file without anything for the loader (debug symbols?)"
    if flags & _NOT_FOR_DLOPEN:
        return "unknown", "it is marked as not to be opened by programs (DF_1_NOOPEN)"
    if wants_executable_stack(file.segments) and refuses_executable_stacks():
        return "executable-stack", "it asks for an executable stack"
    return "", ""


def wants_executable_stack(segments: Iterable[tuple[int, ...]]) -> bool:
    """Return True for a file that says so, or nothing of it, which means the same."""
    return next((bool(flags & 1) for kind, flags, *_ in segments if kind == PT_GNU_STACK), True)


def refuses_executable_stacks() -> bool:
    """Return True if dlopen() makes no stack executable, as of glibc 2.41 (its NEWS)."""
    release = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition("glibc ")[2].split(".")
    is_new = len(release) > 1 and tuple(map(int, release[:2])) >= (2, 41)
    return is_new and "rtld.execstack=2" not in os.environ.get("GLIBC_TUNABLES", "")


def _machine(header: bytes) -> str:
    number = int.from_bytes(header[18:20], "little")
    return f"{_MACHINES.get(number, f'machine {number}')}{'' if header[4] == 2 else ', 32 bit'}"


class LoadedObject:
    """A library in a file: the loader would map it, or it is to be taken for mapped."""

    def __init__(self, path: str, file: ElfFile, loader: Place | None, *, is_new: bool) -> None:
        self.path, self.file, self.is_new = path, file, is_new
        self.place, self.symbols = Place(path, file, loader), SharedObject(file)
        self.identity, self.names = identity(path), (file.soname, path)


class Load:
    """One load, gone through as the loader would.

    Attributes:
        objects: What the loader would use, the extension first; filled by `map_libraries`.
        handles: The program's, and of what is mapped already and is used; filled as well.
        served: By the names under which libraries are asked for: a handle, or an object.
    """

    def __init__(
        self,
        path: str,
        file: ElfFile,
        resident: Resident,
        opened: ExitStack,
        given: Iterable[str] = (),
        own: Mapping[str, str] | None = None,
    ) -> None:
        self._resident, self._opened = resident, opened
        # Names that get other files than by the loader's rules, or are to be looked for by others.
        self._own = own or {}
        self._budget = file.budget  # for all of it
        self._count = 0
        # The closest to the extension first.
        self.objects: list[LoadedObject] = []
        self.handles = [resident.program]
        self.served: dict[str, int | LoadedObject | None] = {}
        self._given: dict[str, LoadedObject] = {}
        self._symbols: dict[int, SharedObject] = {}  # of what is mapped
        self._lacks: dict[tuple[int | LoadedObject, bytes], bool] = {}  # a version
        self._take_for_loaded(given)
        self._root = LoadedObject(path, file, None, is_new=True)

    def open(self, path: str, loader: Place | None, *, is_new: bool) -> LoadedObject:
        """Return a library in a file; it stays open as long as the others."""
        self._count += 1
        if self._count > _MOST_FILES:
            raise UnreadableError("it needs more libraries than can be looked at")
        file = self._opened.enter_context(ElfFile(path, self._budget))
        return LoadedObject(path, file, loader, is_new=is_new)

    @lazy
    def _search(self) -> SearchPath:
        """Looks in the folders of the program too, and of the library that Python is in."""
        library = self._resident.owner(self._resident.program, b"Py_Initialize")
        files = os.path.realpath("/proc/self/exe"), *([library] if ".so" in library else ())
        return SearchPath(tuple(self.open(file, None, is_new=False).place for file in files))

    def _take_for_loaded(self, files: Iterable[str]) -> None:
        waiting = [self.open(path, None, is_new=False) for path in files]
        for one in waiting:
            for name in (one.file.soname, os.path.basename(one.path)):
                if name:
                    self._given.setdefault(name, one)
        for one in waiting:  # which grows
            for name in one.file.needed:
                if name in self._given or self._resident.handle(name):
                    continue
                if path := self._search.find(name, one.place):
                    found = self.open(path, one.place, is_new=False)
                    self._given[name] = found
                    self._given.setdefault(found.file.soname or name, found)
                    waiting.append(found)
        self._global = [one for one in waiting if "_global_deps" in one.path]

    # --- the steps --------------------------------------------------------------------

    def forecast(self, settled: dict[object, Settled] | None) -> Forecast:
        """Go through the load and return what it would meet."""
        needed = self._root.file.needed
        lacking = self.map_libraries()
        for one in self.objects:
            problem, detail = problem_of(one.file)
            if problem:
                detail = f"{one.path}, which it needs: {detail}"
                return Forecast(self._root.path, problem, detail, needed)
        new = [one for one in self.objects if one.is_new]
        versions = [lack for one in new for lack in self._missing_versions(one)]
        # Of a load that fails in any case the symbols tell how far off its libraries are.
        symbols: list[Lack] = []
        try:
            if settled is None or not lacking:
                symbols = self._missing_symbols(new, {} if settled is None else settled)
        except UnreadableError:
            if not lacking and not versions:
                raise
        return Forecast(
            self._root.path,
            needed=needed,
            libraries=tuple(lacking),
            versions=tuple(versions),
            symbols=tuple(symbols[:_MOST_LACKS]),
        )

    def map_libraries(self) -> list[Lack]:
        """Find the libraries that are needed, and theirs; return those that are nowhere."""
        lacking = []
        self.objects.append(self._root)
        for one in self.objects:  # which grows: breadth first
            for name in one.file.needed:
                if name in self.served:
                    continue
                served = self.served[name] = self._serve(name, one)
                if served is None:
                    lacking.append(Lack(name, one.path))
                elif isinstance(served, int):
                    if served not in self.handles:
                        self.handles.append(served)
                elif served not in self.objects:
                    self.objects.append(served)
        self.objects += [one for one in self._global if one not in self.objects]
        return lacking

    def _serve(self, name: str, one: LoadedObject) -> int | LoadedObject | None:
        """Return what the loader would take for a library that an object needs."""
        own = self._own.get(name, "")
        for text in [own] if own else one.place.expanded(name):
            if handle := self._resident.handle(text):
                return handle
        if name in self._given:
            return self._given[name]
        for other in self.objects:
            if name in other.names:
                return other
        path = own or self._search.find(name, one.place)
        if not path:
            return None
        handle = self._resident.handle(path)  # the same file, under another name
        if handle:
            return handle
        itself = identity(path)
        for other in self.objects:
            if other.identity == itself:
                return other
        return self.open(path, one.place, is_new=True)

    def _missing_versions(self, one: LoadedObject) -> list[Lack]:
        found = []
        for need in one.symbols.requirements:
            server = self.served.get(need.library.decode("utf-8", "replace"))
            if need.is_weak or server is None:
                continue  # None: it is missing, or has come in by another name
            key = server, need.version
            if key not in self._lacks:
                self._lacks[key] = self._symbols_of(server).lacks_version(need.version)
            if self._lacks[key]:
                version = need.version.decode("utf-8", "replace")
                file = self._resident.path(server) if isinstance(server, int) else server.path
                found.append(Lack(version, one.path, file))
        return found

    def _missing_symbols(
        self, new: list[LoadedObject], settled: dict[object, Settled]
    ) -> list[Lack]:
        found: list[Lack] = []
        scope: list[int | LoadedObject] = [*self.handles, *self.objects]
        identities = {one: self._identity(one) for one in scope}
        there = frozenset(identities.values())
        for one in new:
            known = settled.get(identities[one])
            if known is not None and known <= there:
                continue
            owners: set[object] = set()
            missing: list[Lack] = []
            hidden: list[tuple[str, LoadedObject, str]] | None = None
            for symbol in one.symbols.wanted():
                self._budget.spend(STEP)
                # dlsym() would allocate it: who wants it in the static TLS block is refused then.
                if symbol.is_tls:
                    continue
                known = settled.get(symbol)
                if known is not None and known <= there:
                    owners |= known
                    continue
                if (owner := self._owner(symbol, scope)) is None:
                    hidden = [*self.hidden(one)] if hidden is None else hidden
                    older = next((f for _, own, f in hidden if own.symbols.defines(symbol)), "")
                    missing.append(Lack(symbol.name.decode("utf-8", "replace"), one.path, older))
                else:
                    settled[symbol] = frozenset([identities[owner]])
                    owners.add(identities[owner])
            if not missing:
                settled[identities[one]] = frozenset(owners)
            found += missing
        return found

    def hidden(self, one: LoadedObject) -> Iterator[tuple[str, LoadedObject, str]]:
        """Yield the libraries that an object would find, and does not: others came by their names.

        Each with its name, and the file that is there instead.
        """
        for name in one.file.needed:
            served = None if name in self._own else self.served.get(name)
            path = self._search.find(name, one.place) if isinstance(served, int) else ""
            if path and isinstance(served, int):
                there = self._resident.path(served)
                is_copy = there.startswith("/proc/self/")  # in memory; it may be of this file
                if not (is_copy or os.path.samefile(path, there)):
                    yield name, self.open(path, one.place, is_new=False), there

    def _symbols_of(self, server: int | LoadedObject) -> SharedObject:
        if not isinstance(server, int):
            return server.symbols
        if server not in self._symbols:
            self._symbols[server] = self._resident.object(server)
        return self._symbols[server]

    def _identity(self, one: int | LoadedObject) -> object:
        return identity(self._resident.path(one)) if isinstance(one, int) else one.identity

    def _owner(self, wanted: Wanted, likely: list[int | LoadedObject]) -> int | LoadedObject | None:
        """Return what has a symbol, or has brought it, None where nothing has.

        Of all `likely` to have it the last owner comes first, and is put there: names of one
        library come in a row.
        """
        has = self._resident.has
        for one in likely:
            if has(one, wanted) if isinstance(one, int) else one.symbols.defines(wanted):
                if one is not likely[0]:
                    likely.remove(one)
                    likely.insert(0, one)
                return one
        if not wanted.version:
            return None
        # A library that knows no versions serves as well, one that has only others does not.
        plain = Wanted(wanted.name)
        for handle in self.handles:
            if has(handle, plain):
                owner = self._resident.handle(self._resident.owner(handle, wanted.name))
                if not owner or self._symbols_of(owner).defines(wanted):
                    return handle
        return None
