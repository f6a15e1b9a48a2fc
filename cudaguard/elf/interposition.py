"""Names that a library and its own dependencies define, and another library answers nevertheless.

The dynamic loader looks a name up in the global scope first: the program, what it was started with,
and all that was opened with RTLD_GLOBAL since. Only then come the library itself and what it needs.
So a library in the global scope answers for names that a later one has for itself. Opened with
RTLD_DEEPBIND, the later one asks its own first.

Source: ``ld.so(8)``, ``dlopen(3)``; glibc's ``elf/dl-lookup.c`` and ``elf/dl-object.c``.
"""

from __future__ import annotations

import re

from cudaguard.elf.process import Image, library_at
from cudaguard.elf.reader import CXX_RUNTIME, ElfFile, gnu_hash
from cudaguard.elf.symbols import SharedObject, Wanted
from cudaguard.files import os, own_errors
from cudaguard.model import TYPE_CHECKING, NamedTuple, lazy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, KeysView, Sequence
    from contextlib import ExitStack

    from cudaguard.elf.process import Library, Memory, Scope
    from cudaguard.elf.resident import Resident

# Members of templates whose layout GCC 11 has changed and whose names it has not.
_OTHER_LAYOUT = (
    b"_ZNKSt8__detail21_Hash_node_value_base",
    b"_ZNSt8__detail21_Hash_node_value_base",
)
# Of these any copy does: descriptions of types, tags of the standard library that are compared by
# address, its errors, what throws them, what hands on to the plain operator delete, and functions
# that newer compilers add to an older C++ runtime (in NVIDIA's libcufile.so.0, in libtvm_ffi.so).
_ANY_COPY_DOES = re.compile(
    rb"_ZT[IS]|_ZZNSt|__cxa_(?:throw_bad_|call_term)|_Zd[la]Pvm|_ZNSt8ios_base7_M_(?:move|swap)ERS_"
    rb"|_ZSt21ios_base_library_initv|_Z(?:NK?St\d+|St\d+__throw_)(?:bad_array_new_length"
    rb"|bad_optional_access|invalid_argument|out_of_range"
    rb"|(?:logic|domain|length|range|runtime|overflow|underflow)_error)"
).match
# What GL, OpenGL, EGL and GLES of glvnd hand on to: whose name answers makes no difference.
_DISPATCHER = "libGLdispatch.so.0"
# Variables of the C library that a program may have copies of, with the same value.
_SAME_EVERYWHERE = (b"stdin", b"stdout", b"stderr")
_HEX = frozenset("0123456789abcdef")
# Of these each has some names of the others, and means the same by them.
_C_LIBRARY = ("libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux",
              "libbsd.so")  # fmt: skip


class Interposed(NamedTuple):
    """A name that another library answers."""

    name: str  # as the linker writes it
    by: str  # file of the library in the global scope
    own: str  # file of the library that it should have been


class Binding(NamedTuple):
    """How the names of what a load maps are bound."""

    interposed: tuple[Interposed, ...] = ()  # what libraries answer that have nothing to do with it
    uncertain: str = ""  # why RTLD_DEEPBIND would change more than that; empty if it would not


class Known(NamedTuple):
    """What is known of mapped libraries, by their files, for the next load that uses them."""

    codes: dict[str, KeysView[int]]  # the hashes of the names that one defines
    # of one that interposes, and one that is used: symbols of the latter that both may have
    common: dict[tuple[str, str], list[tuple[int, bytes]]]

    def codes_of(self, member: Member) -> KeysView[int]:
        """Return the hashes of the names that a library defines."""
        if member.file not in self.codes:
            self.codes[member.file] = member.symbols.codes()
        return self.codes[member.file]


class Member(NamedTuple):
    """A library and its symbols."""

    file: str  # its file with links resolved; empty for the program
    symbols: SharedObject  # what it defines and asks for


def members(memory: Memory, libraries: Iterable[Library]) -> list[Member]:
    """Return mapped libraries with their symbols."""
    return [Member(library.file, SharedObject(Image(memory, library))) for library in libraries]


def load_of(path: str, resident: Resident, opened: ExitStack) -> tuple[list[Member], list[int]]:
    """Return what the load of a file would map, and handles of what it would use of the mapped.

    Raises:
        OSError: A file cannot be read.
    """
    from cudaguard.elf.forecast import Load

    if resident.handle(path):
        return [], []
    load = Load(path, opened.enter_context(ElfFile(path)), resident, opened)
    load.map_libraries()
    new = [Member(os.path.realpath(o.path), o.symbols) for o in load.objects if o.is_new]
    return new, load.handles[1:]


def binding_of(
    new: Sequence[Member],
    handles: Sequence[int],  # of mapped libraries that they need
    scope: Scope,  # the global scope
    resident: Resident,  # what is mapped
    known: Known,  # is added to
) -> Binding:
    """Return how the names of some libraries are bound.

    Raises:
        OSError: Something cannot be read, or makes no sense.
    """
    unknown = [library for library in scope.interposers if library.file not in known.codes]
    for one in members(resident.memory, unknown):
        known.codes_of(one)
    theirs = [known.codes[library.file] for library in scope.interposers]
    if not any(one.symbols.is_met(theirs) for one in new):  # as most: they share no name
        return Binding()
    used: list[Member] = []
    waiting = list(handles)
    for handle in waiting:  # which grows: breadth first
        library = library_at(resident.memory, handle)[0]
        image = Image(resident.memory, library)
        if all(library.file != one.file for one in new):
            used.append(Member(library.file, SharedObject(image)))
        more = filter(None, map(resident.handle, image.needed))
        waiting += [library for library in dict.fromkeys(more) if library not in waiting]
    asked = _Asked(new, used, known)
    program, start, opened = (
        members(resident.memory, part) for part in (scope.program, scope.start, scope.opened)
    )
    rivals = {library.file for library in scope.interposers}
    found: list[Interposed] = []
    for place, member in enumerate(opened):
        if member.file in rivals and all(member.file != own.file for own in asked.own):
            # What these define never resolves to it.
            found += asked.taken_by(member, (*program, *start, *opened[:place]))
    if not found:
        return Binding()
    sanitizer = asked.definer(Wanted(b"dlopen"), program)  # it ends who asks for RTLD_DEEPBIND
    if sanitizer is not None:
        return Binding(tuple(found), f"{sanitizer.file or 'Python'} has a dlopen of its own")
    are_concerned = {name.own for name in found} & {member.file for member in used}
    why = asked.why_shared(used if are_concerned else (), rivals, resident)
    why = why or asked.why_others(program, start, members(resident.memory, scope.meant))
    return Binding(tuple(found), why)


class _Asked:
    """The names that some libraries have the loader look up."""

    def __init__(self, new: Sequence[Member], used: Sequence[Member], known: Known) -> None:
        self._new, self.own, self._known = new, (*new, *used), known
        # Of what is mapped already, the symbols that interposers have as well.
        self._shared: dict[str, set[int]] = {member.file: set() for member in used}

    @lazy
    def _undefined(self) -> dict[bytes, list[Wanted]]:
        found: dict[bytes, list[Wanted]] = {}
        for member in self._new:
            for name in member.symbols.wanted():
                found.setdefault(name.name, []).append(name)
        return found

    @lazy
    def _coded(self) -> list[tuple[int, bytes]]:
        return [(gnu_hash(text) | 1, text) for text in self._undefined]  # may be 100,000

    def taken_by(self, interposer: Member, first: Sequence[Member]) -> list[Interposed]:
        """Return the names of theirs that another library answers; none if they rely on it."""
        theirs, defines = self._known.codes_of(interposer), interposer.symbols.defines
        taken: dict[bytes, Interposed] = {}
        for owner in self.own:
            if all(_DISPATCHER in one.symbols.source.needed for one in (interposer, owner)):
                continue
            for index, text in self._common(interposer, owner):
                if owner not in self._new:
                    self._shared[owner.file].add(index)
                for name in self._by_name(text, owner, index):
                    if text not in taken and defines(name) and not self.definer(name, first):
                        shown = text.decode("utf-8", "replace")
                        taken[text] = Interposed(shown, interposer.file, owner.file)
        # Who uses names of that library, and has no others for them, relies on it.
        if taken and any(
            defines(name) and not self.definer(name, (*self.own, *first))
            for name in self._undefined_among(theirs)
            if name.name not in taken
        ):
            return []
        return [taken[text] for text in sorted(taken)]

    def _common(self, interposer: Member, owner: Member) -> list[tuple[int, bytes]]:
        """Return the symbols of one of them that may be an interposer's too, and matter."""
        pair, common = (interposer.file, owner.file), self._known.common
        if pair in common:
            return common[pair]
        theirs, is_new = self._known.codes_of(interposer), owner in self._new
        codes = theirs if is_new else theirs & self._known.codes_of(owner)
        found = [
            (index, text)
            for index, text, is_strong in (owner.symbols.named(codes) if codes else ())
            # Others are inline functions and the like.
            if (is_strong or text.startswith(_OTHER_LAYOUT)) and not _ANY_COPY_DOES(text)
        ]
        return found if is_new else common.setdefault(pair, found)

    def why_shared(self, used: Iterable[Member], rivals: set[str], resident: Resident) -> str:
        """Return which library that is mapped already has its names from one of the rivals."""
        for member in used:
            # Functions of the C++ runtime share no state that differs between its releases.
            is_asked = self._shared[member.file] and not is_cxx_runtime(member.file)
            places = member.symbols.words_of(self._shared[member.file]) if is_asked else ()
            if any(os.path.realpath(resident.file_at(place)) in rivals for place in places):
                return f"{member.file}, which it needs, uses such symbols already"
        return ""

    def why_others(
        self, program: Sequence[Member], start: Sequence[Member], meant: Sequence[Member]
    ) -> str:
        """Return which name would come from their own then that is shared on purpose now."""
        c_library = [member for member in start if _is_of_c_library(member.file)]
        meant = [member for member in meant if not is_cxx_runtime(member.file)]
        files = [one.file for one in self.own]
        for member in (*program, *c_library, *meant):
            theirs = self._known.codes_of(member)
            # Of those that are asked before it; after it, none answers a name that it has.
            sooner = self.own[: files.index(member.file)] if member.file in files else self.own
            both: set[int] = set().union(*(theirs & self._known.codes_of(one) for one in sooner))
            for name in self._among(both) if both else ():
                mine = self.definer(name, self.own) if member.symbols.defines(name) else None
                if mine is None or mine.file == member.file or name.name in _SAME_EVERYWHERE:
                    continue
                if _is_of_c_library(mine.file) and member in c_library:
                    continue
                # Such as the libgomp of two wheels: a copy that was bundled for nobody else.
                is_bundled = _bundled(mine.file) == _bundled(member.file) != ""
                if member in meant and (is_bundled or _may_be_beside(mine.file, member.file)):
                    continue
                if member not in meant or mine.symbols.has_global(name.name):
                    what, other = name.name.decode("utf-8", "replace"), member.file or "Python"
                    return f"{what} would come from {mine.file} then, and no longer from {other}"
        return ""

    def definer(self, name: Wanted, members: Iterable[Member]) -> Member | None:
        """Return the first of some libraries that defines a name."""
        code = gnu_hash(name.name) | 1
        may = (member for member in members if code in self._known.codes_of(member))
        return next((member for member in may if member.symbols.defines(name)), None)

    def _by_name(self, text: bytes, owner: Member, index: int) -> Iterator[Wanted]:
        """Yield the name, if it is asked for: by others, or by the library that has it."""
        yield from self._undefined.get(text, ())
        if owner in self._new and index in owner.symbols.references_to_itself:
            yield Wanted(text)

    def _undefined_among(self, codes: KeysView[int] | set[int]) -> Iterator[Wanted]:
        """Yield the names with such hashes of those that are not defined where they are used."""
        for code, text in self._coded:
            if code in codes:
                yield from self._undefined[text]

    def _among(self, codes: KeysView[int] | set[int]) -> Iterator[Wanted]:
        """Yield all names with such hashes."""
        yield from self._undefined_among(codes)
        for member in self._new:
            for index, text, _ in member.symbols.named(codes):
                if index in member.symbols.references_to_itself:
                    yield Wanted(text)


def is_cxx_runtime(file: str) -> bool:
    """Return True for libstdc++.so.6, however its file is called."""
    return os.path.basename(file).startswith(CXX_RUNTIME)


def _bundled(file: str) -> str:
    """Return the name of what auditwheel has bundled, without its mark; empty for others."""
    stem, dash, mark = os.path.basename(file).partition(".so")[0].rpartition("-")
    return stem if dash and len(mark) == 8 and _HEX.issuperset(mark) else ""


def _may_be_beside(file: str, other: str) -> bool:
    """Return True for two OpenMP runtimes of different families; two of LLVM's abort."""
    names = [os.path.basename(file), os.path.basename(other)]
    are_openmp = all(name.startswith(("libgomp", "libiomp5", "libomp")) for name in names)
    return are_openmp and any(name.startswith("libgomp") for name in names)


def _is_of_c_library(file: str) -> bool:
    return os.path.basename(file).startswith(_C_LIBRARY)


def open_deep(path: str) -> bool:
    """Map a library so that it and what it brings ask their own first; False if refused."""
    import _ctypes

    try:
        _ctypes.dlopen(os.path.abspath(path), os.RTLD_NOW | os.RTLD_DEEPBIND)
    except own_errors(OSError):  # the import itself will say so
        return False
    return True
