"""Take the names of a library back out of the global symbol scope, after the fact.

No call of the dynamic loader does that. Its look-up, however, skips every definition that is
marked hidden (``STV_HIDDEN``) in the symbol table of its library, while the library's own
references bind to it still. The table is marked in the memory of this process; files stay as
they are, and so does what was bound before.

One thread at a time does that, and no library is unloaded meanwhile. One byte per name is written
and read back. If anything fails, all of it is undone.

Source: ``elf.h``; ``proc(5)``; the look-up predicate of glibc's ``elf/dl-lookup.c``.
"""

from __future__ import annotations

import ctypes
import errno
import sys
from _thread import RLock
from typing import NamedTuple

from cudaguard.core.patterns import actions_of, matches, texts_of
from cudaguard.elf.image import SYMBOL, Image
from cudaguard.elf.process import uses_glibc
from cudaguard.elf.resident import GlobalScope, Resident, ThreadLocals, bound_addresses
from cudaguard.features.symbol_scope.facts import packages_of, pattern_of_names, runtime_among
from cudaguard.files import open_file, os, ours
from cudaguard.system.facts import Packages
from cudaguard.system.loader_list import LoaderNews
from cudaguard.system.modules import peek
from cudaguard.system.symbol_families import GLOBAL_ON_PURPOSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.elf.image import Symbols
    from cudaguard.elf.loaded import Library
    from cudaguard.elf.memory import Memory
    from cudaguard.model import Rule

_MACHINES = ("x86_64", "AMD64", "aarch64") if sys.maxsize >> 32 else ()  # where it was tried
_SAMPLES = 16  # names of a library by which it is told whether it is global
_HIDDEN = 2  # STV_HIDDEN
_SHOWN = (0, 3)  # STV_DEFAULT, STV_PROTECTED
_PLAIN = (0, 1, 2)  # STT_NOTYPE, STT_OBJECT, STT_FUNC
_PER_THREAD, _BY_FUNCTION = 6, 10  # STT_TLS, STT_GNU_IFUNC
_GLOBAL = 1  # STB_GLOBAL
_OTHER = 5  # where in a symbol `st_other` is, whose lower two bits are the visibility
_AS_HIDDEN = bytes(byte & ~3 | _HIDDEN for byte in range(256))
_PROT_WRITE, _PROT_EXEC = 2, 4

# Re-entrant: a signal handler may import something while we are at it. A fork waits for it: the
# child would have half of the names hidden, and a lock that nobody releases.
_lock = RLock()
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


class Demotion(NamedTuple):
    """What became of a demotion.

    Args:
        state: ``done``, ``local`` (nothing to do: none of it is global), ``absent`` (not
            loaded), ``refused``, ``failed``, or ``half`` (failed, and not all could be undone).
        reason: Why it was refused, or what failed.
        library: File of the library that the rule names.
        libraries: How many libraries were changed.
        names: How many names were hidden.
        bound: Who had bound to them before and stays so: modules, packages or libraries, and
            to how many names.
        left: Libraries of the package that were not changed, each with the reason, and those
            whose pages stay writable; in words.
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
        with _lock, Resident() as resident:
            return _demote(rule, resident)
    except ours(OSError) as error:
        return Demotion("failed", f"{error.strerror or error}")


def _demote(rule: Rule, resident: Resident) -> Demotion:
    memory, everything = resident.memory, resident.libraries()
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
        hidden = Hidden(members, resident)
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
        pages = Pages()
        reason, counts = _hide(members, memory, scope, pages)
        left += tuple(
            f"the symbol table of {member.image.library.path} stays writable: its pages could not "
            "be protected again"
            for member in members
            if member.symbols.address in pages.left_writable
        )
    except _RefusedError as refused:
        return Demotion("refused", str(refused), library)
    except ours(OSError) as error:
        return Demotion("failed", f"{error.strerror or error}", library)
    state = "done" if not reason else "half" if counts else "failed"
    bound = bound if counts else ()
    return Demotion(state, reason, library, len(counts), sum(counts), bound, left)


def _texts(actions: Iterable[Mapping[str, Any]], parameter: str) -> tuple[str, ...]:
    return tuple(text for action in actions for text in texts_of(action.get(parameter, ())))


def _refuse_library(library: Library, is_own: bool, own: frozenset[str]) -> None:
    if matches(os.path.basename(library.path), GLOBAL_ON_PURPOSE):
        raise _RefusedError(f"{library.path} is a library that others rely on to be global")
    if not is_own:
        folders = " and ".join(sorted(own))
        raise _RefusedError(f"{library.path} lies outside the folders of {folders}")


def _hide(
    members: list[Member], memory: Memory, scope: GlobalScope, pages: Pages
) -> tuple[str, list[int]]:
    """Hide the names of all members; if that fails, show them again.

    Returns:
        Why it failed, if it did; and how many names of each library are hidden now.
    """
    reason = ""
    try:
        for member in members:
            pages.write(member, member.others.translate(_AS_HIDDEN))
        counts = [_count_hidden(member, memory) for member in members]
        for member, count in zip(members, counts):
            if count < len(member.hidden) or _finds_any(member, member.hidden, scope):
                path = member.image.library.path
                raise OSError(errno.EIO, f"names of {path} are still found")
    except BaseException as error:
        for member in members:
            try:
                pages.write(member, member.others)
            except ours(OSError):  # what stays hidden is counted
                continue
        if not isinstance(error, ours(OSError)):
            raise
        reason = f"{error.strerror or error}"
        counts = [_count_hidden(member, memory) for member in members]
    finally:
        LoaderNews.everything.note_hidden()
    return reason, list(filter(None, counts))


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


def _count_hidden(member: Member, memory: Memory) -> int:
    """Return how many of the names are hidden now."""
    now = memory.read(member.symbols.address, len(member.symbols.table))[_OTHER::SYMBOL]
    return [now[index] & 3 for index in member.hidden].count(_HIDDEN)


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

    @property
    def others(self) -> bytes:
        """The byte of each name that says how visible it is."""
        return self.symbols.table[_OTHER::SYMBOL]

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
        resident: Knows where it lies, if the table does not say so.

    Raises:
        OSError: A library cannot be read.
    """

    def __init__(self, members: Sequence[Member], resident: Resident) -> None:
        self._spans = [member.image.segments()[0] for member in members]
        self._thread_locals = ThreadLocals()
        self._indices = [self._placed(member, resident) for member in members]
        self.addresses = frozenset().union(*self._indices)

    def _placed(self, member: Member, resident: Resident) -> dict[int, int]:
        """Return address -> index of the names of a library."""
        kinds = member.symbols.table[4::SYMBOL]
        odd = [i for i in member.hidden if kinds[i] & 15 in (_PER_THREAD, _BY_FUNCTION)]
        plain = sorted(set(member.hidden).difference(odd)) if odd else member.hidden
        found = dict(zip(member.addresses(plain), plain))
        for index, address, name in zip(odd, member.addresses(odd), member.names(odd)):
            handle = resident.handle(member.image.library.path)
            place = resident.address(handle, name)  # the table does not have it
            if place and kinds[index] & 15 == _PER_THREAD:
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


# --- writing to memory that is mapped read-only ---------------------------------------------------


class Pages:
    """The pages of symbol tables: bytes are written to them, one by one, and they stay protected.

    Attributes:
        left_writable: Addresses of the tables whose pages could not be protected again.

    Raises:
        OSError: by `write` as well, where the kernel forbids it.
    """

    def __init__(self) -> None:
        self.left_writable: set[int] = set()
        self._protect = ctypes.pythonapi["mprotect"]
        self._protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        bits = {"r": 1, "w": _PROT_WRITE, "x": _PROT_EXEC}
        self._areas = []
        with open_file("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                area, flags = line.split(maxsplit=2)[:2]
                start, stop = (int(number, 16) for number in area.split("-"))
                self._areas.append((start, stop, sum(bits.get(sign, 0) for sign in flags)))

    def write(self, member: Member, others: bytes) -> None:
        """Write how visible its names are to be, of those that are to be hidden."""
        try:
            self._write_unprotected(member, others)
        except ours(OSError):  # a hardened kernel, or pages of code
            _write_as_debugger(member, others)

    def _write_unprotected(self, member: Member, others: bytes) -> None:
        symbols = member.symbols
        page, end = os.sysconf("SC_PAGESIZE"), symbols.address + len(symbols.table)
        first, last = symbols.address - symbols.address % page, end + -end % page
        changed = [
            (max(start, first), min(stop, last), bits)
            for start, stop, bits in self._areas
            if start < last and stop > first
        ]
        # On AArch64, pages of code may be marked so that jumps land only where they should
        # (PROT_BTI); nothing says which, and the mark would be lost.
        if os.uname().machine == "aarch64" and any(bits & _PROT_EXEC for _, _, bits in changed):
            raise OSError(errno.EACCES, "the symbol table lies in pages of code")
        try:
            for start, stop, bits in changed:
                # Execution stays allowed: old libraries keep the table beside their code.
                if self._protect(start, stop - start, bits | _PROT_WRITE):
                    raise OSError(errno.EACCES, "the symbol table cannot be made writable")
            array = (ctypes.c_ubyte * len(symbols.table)).from_address(symbols.address)
            table = memoryview(array).cast("B")
            for index in member.hidden:
                table[SYMBOL * index + _OTHER] = others[index]
        finally:
            failed = [self._protect(start, stop - start, bits) for start, stop, bits in changed]
            note = self.left_writable.add if any(failed) else self.left_writable.discard
            note(symbols.address)


def _write_as_debugger(member: Member, others: bytes) -> None:
    """Write through ``/proc/self/mem``, past the protection of the pages; that takes longer."""
    file = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
    try:
        for index in member.hidden:
            place = member.symbols.address + SYMBOL * index + _OTHER
            os.pwrite(file, others[index : index + 1], place)
    finally:
        os.close(file)
