"""Take the names of a library back out of the global symbol scope, after the fact.

No call of the dynamic loader does that. Its look-up, however, skips every definition that is
marked hidden (``STV_HIDDEN``) in the symbol table of its library, while the library's own
references bind to it still. The table is marked in the memory of this process; files stay as
they are, and so does what was bound before.

Source: ``elf.h``; ``proc(5)``; the look-up predicate of glibc's ``elf/dl-lookup.c``.
"""

from __future__ import annotations

import errno
import sys
from typing import NamedTuple

from cudaguard.core.patterns import actions_of, matches, texts_of
from cudaguard.elf.bound import ThreadLocals, bound_addresses
from cudaguard.elf.image import SYMBOL, Image
from cudaguard.elf.loaded import first_entry, loaded_libraries
from cudaguard.elf.memory import Memory
from cudaguard.elf.process import uses_glibc
from cudaguard.elf.resident import Resident
from cudaguard.elf.symbols import GlobalScope
from cudaguard.features.symbol_scope.facts import runtime_among
from cudaguard.features.symbol_scope.patterns import packages_of, pattern_of_names
from cudaguard.files import open_file, os, ours
from cudaguard.system.loader_list import LoaderNews
from cudaguard.system.modules import peek
from cudaguard.system.packages import Packages
from cudaguard.system.symbol_families import GLOBAL_ON_PURPOSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.elf.image import Symbols
    from cudaguard.elf.loaded import Library
    from cudaguard.model import Rule

_MACHINES = ("x86_64", "AMD64", "aarch64") if sys.maxsize >> 32 else ()  # where it was tried
_SAMPLES = 16  # names of a library by which it is told whether it is global
_HIDDEN = 2  # STV_HIDDEN
_SHOWN = (0, 3)  # STV_DEFAULT, STV_PROTECTED
_PLAIN = (0, 1, 2)  # STT_NOTYPE, STT_OBJECT, STT_FUNC
_PER_THREAD, _BY_FUNCTION = 6, 10  # STT_TLS, STT_GNU_IFUNC
_GLOBAL = 1  # STB_GLOBAL


class Demotion(NamedTuple):
    """What became of a demotion.

    Args:
        state: ``done``, ``local`` (nothing to do: none of it is global), ``absent`` (not
            loaded), ``refused`` or ``failed``.
        reason: Why it was refused, or what failed.
        library: File of the library that the rule names.
        libraries: How many libraries were changed.
        names: How many names were hidden.
        bound: Who had bound to them before and stays so: modules, packages or libraries, and
            to how many names.
        left: Libraries of the package that were not changed, each with the reason, in words.
        runtime: Whose own C++ runtime hiding would have broken, if it was refused for that.
    """

    state: str
    reason: str = ""
    library: str = ""
    libraries: int = 0
    names: int = 0
    bound: tuple[tuple[str, int], ...] = ()
    left: tuple[str, ...] = ()
    runtime: str = ""


class _RefusedError(Exception):
    """The specification excludes this demotion; the text says why."""


def demote(rule: Rule, machine: str) -> Demotion:
    """Hide the names of the libraries that a rule names, and of what their package bundles.

    Args:
        rule: A rule with the action ``hide_symbols``.
        machine: Hardware name of this machine.
    """
    if machine not in _MACHINES or not uses_glibc():
        return Demotion("refused", "it is supported on x86-64 and AArch64 with glibc only")
    try:
        with Memory() as memory:
            return _demote(rule, memory)
    except OSError as error:
        return Demotion("failed", f"{error.strerror or error}")


def _demote(rule: Rule, memory: Memory) -> Demotion:
    everything = loaded_libraries(memory, first_entry())
    files = [os.path.basename(lib.path) for lib in everything]
    actions = [
        action
        for action in actions_of(rule, "hide_symbols")
        if any(matches(file, (action["hide_symbols"],)) for file in files)
    ]
    patterns = [action["hide_symbols"] for action in actions]
    named = [lib for file, lib in zip(files, everything) if matches(file, patterns)]
    if not named:
        return Demotion("absent")
    library = named[0].path
    packages, own = Packages(), packages_of(rule)
    group = [lib for lib in everything if packages.of(lib.path).lower() in own]
    scope = GlobalScope()
    try:
        for lib in named:
            _refuse_library(lib, lib in group, own)
        # The library that the rule names may have none of the names itself, or stand before
        # another one of the package that has them too: all of the package is looked at.
        hide = _texts(actions, "names")
        hides = None if "*" in hide else pattern_of_names(hide)  # None: all
        keeps = pattern_of_names(_texts(actions, "keep"))
        members = [
            _planned(Image(memory, lib), hides, keeps)
            for lib in group
            if not matches(os.path.basename(lib.path), GLOBAL_ON_PURPOSE)
        ]
        members = [member for member in members if member.hidden and _is_global(member, scope)]
        if not members:
            return Demotion("local", library=library)
        has_runtime = [m.image for m in members if m.image.shows_runtime(m.symbols, m.hidden)]
        bad = runtime_among(image.library.path for image in has_runtime)
        if bad:
            reason = f"{bad} contains its own C++ runtime, which that would break"
            return Demotion("refused", reason, library, runtime=bad)
        images = {lib: Image(memory, lib) for lib in everything}
        _refuse_what_breaks(members, [images[lib] for lib in everything if lib not in group])
        hidden = Hidden(members)
        _refuse_lazy_users(hidden.addresses, images.values(), scope)
        # What was loaded before the first of them was bound before as well.
        first = min(everything.index(member.image.library) for member in members)
        later = [images[lib] for lib in everything[first:] if lib not in group]
        users = hidden.users(later)
        bound = by_module(users, packages)
        owners = hidden.next_owners(members, users)
        left = tuple(_left(*pair) for pair in zip(members, owners) if pair[1])
        members = [member for member, owner in zip(members, owners) if not owner]
        if not members:
            raise _RefusedError(left[0])
        _write_all(members)
    except _RefusedError as refused:
        return Demotion("refused", str(refused), library)
    except OSError as error:
        return Demotion("failed", f"{error.strerror or error}", library)
    shown = [m.image.library.path for m in members if _finds_any(m, m.hidden, scope)]
    if shown:
        return Demotion("failed", f"names of {shown[0]} are still found", library)
    names = sum(len(member.hidden) for member in members)
    return Demotion("done", "", library, len(members), names, bound, left)


def _texts(actions: Iterable[Mapping[str, Any]], parameter: str) -> tuple[str, ...]:
    return tuple(text for action in actions for text in texts_of(action.get(parameter, ())))


def _refuse_library(library: Library, is_own: bool, own: frozenset[str]) -> None:
    if matches(os.path.basename(library.path), GLOBAL_ON_PURPOSE):
        raise _RefusedError(f"{library.path} is a library that others rely on to be global")
    if not is_own:
        folders = " and ".join(sorted(own))
        raise _RefusedError(f"{library.path} lies outside the folders of {folders}")


def _write_all(members: list[Member]) -> None:
    """Mark the names of all members, or of none."""
    for written, member in enumerate(members):
        try:
            _write(member)
        except OSError:
            for earlier in members[:written]:
                _write(earlier, undo=True)
            raise


def _planned(image: Image, hides: re.Pattern[bytes] | None, keeps: re.Pattern[bytes]) -> Member:
    symbols = image.symbols()
    table, strings = symbols.table, symbols.strings
    rows = zip(
        symbols.names, table[4::SYMBOL], table[5::SYMBOL], table[6::SYMBOL], table[7::SYMBOL]
    )
    hidden = [
        index
        for index, (name, info, other, section, section_high) in enumerate(rows)
        # Defined (its section is known), not local to the file, and not hidden already.
        if (section or section_high)
        and info > 15
        and other & 3 in _SHOWN
        and (hides is None or hides.match(strings, name))
        and not keeps.match(strings, name)
    ]
    return Member(image, symbols, tuple(hidden))


def _is_global(member: Member, scope: GlobalScope) -> bool:
    """Return True if names of this very library are found globally."""
    if _finds_any(member, member.hidden, scope):
        return True
    # None of those that are to be hidden may have its address in the table: take all names.
    table = member.symbols.table
    rows = enumerate(zip(table[4::SYMBOL], table[6::SYMBOL], table[7::SYMBOL]))
    defined = [index for index, (info, low, high) in rows if info > 15 and (low or high)]
    return _finds_any(member, defined, scope)


def _finds_any(member: Member, indices: Sequence[int], scope: GlobalScope) -> bool:
    kinds = member.symbols.table[4::SYMBOL]
    # The others are per thread, or chosen by a function: their address is not in the table.
    some = [index for index in indices[:: max(1, len(indices) // _SAMPLES)]
            if kinds[index] & 15 in _PLAIN]  # fmt: skip
    some = some or [index for index in indices if kinds[index] & 15 in _PLAIN][:_SAMPLES]
    found = scope.addresses(member.names(some))
    return any(here == there for here, there in zip(member.addresses(some), found))


def _refuse_lazy_users(
    hidden: frozenset[int], everybody: Iterable[Image], scope: GlobalScope
) -> None:
    """Refuse if an object will look up a hidden name, of which it has none, at its first call."""
    for image in everybody:
        if not image.is_bound_lazily():
            continue
        symbols = image.symbols()
        rows = zip(symbols.names, symbols.table[6::SYMBOL], symbols.table[7::SYMBOL])
        asked = [symbols.name(start) for start, low, high in rows if not (low or high)]
        for name, address in zip(asked, scope.addresses(asked)):
            if address in hidden:
                raise _RefusedError(
                    f"{image.library.path} was loaded with RTLD_LAZY: its first call of "
                    f"{name.decode('utf-8', 'replace')} would end the program"
                )


def _refuse_what_breaks(members: list[Member], others: list[Image]) -> None:
    for member in members:
        if member.image.is_bound_lazily():
            raise _RefusedError(
                f"{member.image.library.path} was loaded with RTLD_LAZY: its first call of a "
                "hidden name would end the program"
            )
    sonames = {
        name: member.image.library.path
        for member in members
        for name in (member.image.soname, os.path.basename(member.image.library.path))
        if name
    }
    for image in others:
        for name in image.needed:
            if name in sonames:
                raise _RefusedError(f"{image.library.path} needs {sonames[name]}")


def _left(member: Member, owner: str) -> str:
    name = os.path.basename(member.image.library.path)
    return f"{name} is left as it is: {owner} was loaded after it and calls into it"


def _write(member: Member, *, undo: bool = False) -> None:
    """Mark the names in memory, or as they were."""
    table = bytearray(member.symbols.table)
    for index in () if undo else member.hidden:
        place = index * SYMBOL + 5  # st_other, whose lower two bits are the visibility
        table[place] = table[place] & ~3 | _HIDDEN
    write_symbols(member.symbols.address, table)


# --- who had bound to the names before, and stays so ----------------------------------------------


class Member(NamedTuple):
    """A library to be changed, and which of its names are to be hidden.

    Args:
        image: The library.
        symbols: Its symbol table.
        hidden: Indices into that.
    """

    image: Image
    symbols: Symbols
    hidden: tuple[int, ...]

    def addresses(self, indices: Iterable[int]) -> list[int]:
        """Return the addresses of names, where these are in the table."""
        words = memoryview(self.symbols.table).cast("Q")  # the value is the second of three
        base = self.image.library.base
        return [words[3 * index + 1] + base for index in indices]

    def names(self, indices: Iterable[int]) -> list[bytes]:
        """Return names."""
        starts = memoryview(self.symbols.table).cast("I")
        return [self.symbols.name(starts[index * SYMBOL // 4]) for index in indices]


class User(NamedTuple):
    """A library that is bound to names of the members.

    Args:
        image: The library.
        bound: Addresses of what it refers to; those of this thread where each has its own.
    """

    image: Image
    bound: frozenset[int]


class Hidden:
    """What is hidden: where it lies, who is bound to it, and whose name it is.

    Args:
        members: The libraries that have it.

    Raises:
        OSError: A library cannot be read.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._spans = [member.image.segments()[0] for member in members]
        with Resident() as resident:
            self._thread_locals = ThreadLocals()
            self._indices = [self._placed(member, resident) for member in members]
        self.addresses = frozenset().union(*self._indices)

    def _placed(self, member: Member, resident: Resident) -> dict[int, int]:
        """Return address -> index of the names of a library."""
        kinds = member.symbols.table[4::SYMBOL]
        found = {}
        for index, address in zip(member.hidden, member.addresses(member.hidden)):
            kind, place = kinds[index] & 15, address
            if kind in (_PER_THREAD, _BY_FUNCTION):
                (name,) = member.names((index,))
                handle = resident.handle(member.image.library.path)
                place = resident.address(handle, name)  # the table does not have it
                if place and kind == _PER_THREAD:
                    module = resident.thread_local_module(handle)
                    offset = address - member.image.library.base
                    self._thread_locals.add(module, offset, place)
            found[place] = index
        found.pop(0, None)
        return found

    def users(self, others: Iterable[Image]) -> list[User]:
        """Return which of these libraries are bound to what is hidden."""
        found = []
        for image in others:
            try:
                bound = bound_addresses(image, self._spans) & self.addresses
                bound |= self._thread_locals.bound(image)
            except OSError:  # unloaded in the meantime, or not readable: nothing to say of it
                continue
            if bound:
                found.append(User(image, bound))
        return found

    def next_owners(self, members: Sequence[Member], users: Sequence[User]) -> list[str]:
        """Return for each member who would get its names and calls into it himself; or nothing.

        A system zlib that was loaded after a bundled one has bound its own calls to that: who got
        it now would work with halves of two versions. Nobody gets the names of a library without
        a soname, such as most extension modules; and those that it has only weakly are copies
        that each brings for itself.
        """
        named = [user for user in users if user.image.soname]
        return [
            next((user.image.library.path for user in named if _has_own(user, member, at)), "")
            for member, at in zip(members, self._indices)
        ]


def _has_own(user: User, member: Member, indices: dict[int, int]) -> bool:
    names = member.names(indices[place] for place in user.bound if place in indices)
    return any(user.image.binding(name) == _GLOBAL for name in names)


def by_module(users: Iterable[User], packages: Packages) -> tuple[tuple[str, int], ...]:
    """Return the modules or packages of users, files where these are unknown, and how often.

    Args:
        users: Who is bound.
        packages: Says which file is whose.
    """
    modules = {
        os.path.realpath(file): name
        for name, module in list(sys.modules.items())
        for file in [getattr(peek(module, "__spec__"), "origin", None)]
        if isinstance(file, str) and ".so" in file
    }
    counts: dict[str, int] = {}
    for image, bound in users:
        path = image.library.path
        package = packages.of(path)
        if package in sys.modules and package != modules.get(path):
            name = package
        else:
            name = modules.get(path) or os.path.basename(path)
        counts[name] = counts.get(name, 0) + len(bound)
    return tuple(counts.items())


# --- writing to memory that is mapped read-only, its protection left as it is ---------------------


def write_symbols(address: int, data: bytearray) -> None:
    """Write bytes to an address of a symbol table.

    Raises:
        OSError: The kernel forbids it.
    """
    try:
        _write_as_debugger(address, data)
    except ours(OSError):  # a hardened kernel
        _write_unprotected(address, data)
    LoaderNews.everything.note_hidden()


def _write_as_debugger(address: int, data: bytearray) -> None:
    """Write through ``/proc/self/mem``, past the protection of the pages, which stays."""
    file = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(file, data[done:], address + done)
    finally:
        os.close(file)


def _write_unprotected(address: int, data: bytearray) -> None:
    """Make the pages writable, write, and protect them as before."""
    import ctypes
    import mmap

    protect = ctypes.pythonapi["mprotect"]
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    end = address + len(data)
    changed = [
        (max(start, address - address % mmap.PAGESIZE), min(stop, end + -end % mmap.PAGESIZE), bits)
        for start, stop, bits in _protections()
        if start < end and stop > address
    ]
    # On AArch64, pages of code may be marked so that jumps land only where they should (PROT_BTI);
    # nothing says which, and the mark would be lost.
    if os.uname().machine == "aarch64" and any(bits & mmap.PROT_EXEC for _, _, bits in changed):
        raise OSError(errno.EACCES, "the symbol table lies in pages of code")
    try:
        for start, stop, bits in changed:
            # Execution stays allowed: old libraries keep the table in the segment of their code.
            if protect(start, stop - start, bits | mmap.PROT_WRITE):
                raise OSError(errno.EACCES, "the symbol table cannot be made writable")
        ctypes.memmove(address, (ctypes.c_char * len(data)).from_buffer(data), len(data))
    finally:
        for start, stop, bits in changed:
            protect(start, stop - start, bits)


def _protections() -> list[tuple[int, int, int]]:
    """Return start, end and protection of each mapping of this process."""
    import mmap

    bits = {"r": mmap.PROT_READ, "w": mmap.PROT_WRITE, "x": mmap.PROT_EXEC}
    found = []
    with open_file("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            area, flags = line.split()[:2]
            start, _, stop = area.partition("-")
            found.append((int(start, 16), int(stop, 16), sum(bits.get(sign, 0) for sign in flags)))
    return found
