"""Take the names of a library back out of the global symbol scope, after the fact.

No call of the dynamic loader does that. Its look-up, however, skips every definition that is
marked hidden (``STV_HIDDEN``) in the symbol table of its library, while the library's own
references bind to it still. The table is marked in the memory of this process; files stay as
they are, and so does what was bound before.

One thread at a time does that, and no library is unloaded meanwhile. What is written is read back.
If anything fails, all of it is undone.

Source: ``elf.h``; ``proc(5)``; the look-up predicate of glibc's ``elf/dl-lookup.c``.
"""

from __future__ import annotations

import errno
import sys
from _thread import RLock

from cudaguard.core.patterns import actions_of, matches, texts_of
from cudaguard.elf.process import Image, uses_glibc
from cudaguard.elf.reader import SYMBOL, UNIQUE_OBJECT, is_runtime_id, words
from cudaguard.elf.resident import Resident, bound_addresses
from cudaguard.elf.symbols import DT_PLTRELSZ, SharedObject
from cudaguard.features.symbol_scope.facts import packages_of, pattern_of_names, runtime_among
from cudaguard.files import os, own_errors
from cudaguard.model import NamedTuple
from cudaguard.system.facts import Packages
from cudaguard.system.loader_list import LoaderNews
from cudaguard.system.symbol_families import GLOBAL_ON_PURPOSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from cudaguard.elf.process import Library
    from cudaguard.elf.symbols import SymbolTable
    from cudaguard.model import Rule

_MACHINES = ("x86_64", "AMD64", "aarch64") if sys.maxsize >> 32 else ()  # where it was tried
_HIDDEN = 2  # STV_HIDDEN
_SHOWN = (0, 3)  # STV_DEFAULT, STV_PROTECTED
_PLAIN = (0, 1, 2)  # STT_NOTYPE, STT_OBJECT, STT_FUNC
_BY_FUNCTION = 10  # STT_GNU_IFUNC: a function chooses the address, which is not in the table
_OTHER = 5  # where in a symbol `st_other` is, whose lower two bits are the visibility
_DT_PLTGOT = 3

# Re-entrant: a signal handler may import something while we are at it. A fork waits for it: the
# child would have half of the names hidden, and a lock that nobody releases.
_lock = RLock()
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


class Hiding(NamedTuple):
    """What became of the names that were to be hidden.

    Args:
        state: ``done``, ``local`` (nothing to do: none of it is global), ``absent`` (not
            loaded), ``refused``, ``failed``, or ``half`` (failed, and not all could be undone).
        reason: Why it was refused, or what failed.
        library: File of the library that the rule names.
        libraries: How many libraries were changed.
        names: How many names were hidden.
        bound: Who had bound to them before and stays so: modules, packages or libraries, and
            to how many names.
        left: Libraries of the package that were not changed, each with the reason.
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
    """This library must stay as it is; the text says why."""


class _Member(NamedTuple):
    """A library to be changed, and which of its names are to be hidden.

    Args:
        image: The library.
        symbols: Its symbol table.
        hidden: Indices into that.
    """

    image: Image
    symbols: SymbolTable
    hidden: tuple[int, ...]

    @property
    def path(self) -> str:
        """Its file."""
        return self.image.library.path

    def names(self, indices: Iterable[int]) -> list[bytes]:
        """Return names."""
        starts = memoryview(self.symbols.table).cast("I")
        return [self.symbols.name(starts[index * SYMBOL // 4]) for index in indices]

    def write(self, *, is_hidden: bool) -> None:
        """Mark the names as hidden, or as they were.

        Past the protection of the pages, as a debugger writes.
        """
        first, end = SYMBOL * self.hidden[0], SYMBOL * (self.hidden[-1] + 1)
        part = bytearray(self.symbols.table[first:end])
        for index in self.hidden if is_hidden else ():
            place = SYMBOL * index + _OTHER - first
            part[place] = part[place] & ~3 | _HIDDEN
        file = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.pwrite(file, part, self.symbols.address + first) != len(part):
                raise OSError(errno.EIO, "the symbol table was written in part")
        finally:
            os.close(file)

    def count_hidden(self) -> int:
        """Return how many of the names are hidden now."""
        memory, symbols = self.image.memory, self.symbols
        now = memory.read(symbols.address, len(symbols.table))[_OTHER::SYMBOL]
        return [now[index] & 3 for index in self.hidden].count(_HIDDEN)


def hide_symbols(rule: Rule) -> Hiding:
    """Hide the names of the libraries that a rule names, and of what their package bundles.

    Args:
        rule: A rule with the action ``hide_symbols``.
    """
    if os.uname().machine not in _MACHINES or not uses_glibc():
        return Hiding("refused", "it is supported on x86-64 and AArch64 with glibc only")
    try:
        with _lock, Resident() as resident:
            return _hide_symbols(rule, resident)
    except own_errors(OSError) as error:
        return Hiding("failed", f"{error.strerror or error}")


def _hide_symbols(rule: Rule, resident: Resident) -> Hiding:
    everything = resident.libraries()
    files = [os.path.basename(lib.path) for lib in everything]
    actions = [
        action
        for action in actions_of(rule, "hide_symbols")
        if any(matches(file, (action["hide_symbols"],)) for file in files)
    ]
    patterns = [action["hide_symbols"] for action in actions]
    named = [lib for file, lib in zip(files, everything) if matches(file, patterns)]
    if not named:
        return Hiding("absent")
    packages, own = Packages(), packages_of(rule)
    group = [lib for lib in everything if packages.of(lib.path).lower() in own]
    hide, keep = (
        tuple(text for action in actions for text in texts_of(action.get(parameter, ())))
        for parameter in ("names", "keep")
    )
    done = Hiding("refused", library=named[0].path)
    try:
        for lib in named:
            _refuse_library(lib, lib in group, own)
        scope = words(LoaderNews.everything.global_scope())
        # The library that the rule names may have none of the names itself, or stand before
        # another one of the package that has them too: all of the package is looked at.
        hides = None if "*" in hide else pattern_of_names(hide)  # None: all
        keeps = pattern_of_names(keep)
        members = [
            _planned(Image(resident.memory, lib), hides, keeps)
            for lib in group
            if resident.handle(lib.path) in scope
            and not matches(os.path.basename(lib.path), GLOBAL_ON_PURPOSE)
        ]
        members = [member for member in members if member.hidden]
        if not members:
            return done._replace(state="local")
        bad = runtime_among(member.path for member in members if _has_runtime_ids(member))
        if bad:
            reason = f"{bad} contains its own C++ runtime, which that would break"
            return done._replace(reason=reason, runtime=bad)
        images = {lib: Image(resident.memory, lib) for lib in everything}
        others = [images[lib] for lib in everything if lib not in group]
        _refuse_what_breaks(members, others)
        placed = [_placed(member, resident) for member in members]
        hidden = frozenset().union(*placed)
        _refuse_lazy_users(hidden, images.values(), resident)
        # What was loaded before the first of them was bound before as well.
        first = min(everything.index(member.image.library) for member in members)
        later = [images[lib] for lib in everything[first:] if lib not in group]
        users = _users(later, [member.image.segments()[0] for member in members], hidden)
        owners = [_next_owner(*pair, users) for pair in zip(members, placed)]
        left = tuple(
            f"{os.path.basename(member.path)} is left as it is: {owner} was loaded after it and "
            "calls into it"
            for member, owner in zip(members, owners)
            if owner
        )
        members = [member for member, owner in zip(members, owners) if not owner]
        if not members:
            raise _RefusedError(left[0])
        reason, counts = _hide(members)
    except _RefusedError as refused:
        return done._replace(reason=str(refused))
    except own_errors(OSError) as error:
        return done._replace(state="failed", reason=f"{error.strerror or error}")
    return done._replace(
        state="done" if not reason else "half" if counts else "failed",
        reason=reason,
        libraries=len(counts),
        names=sum(counts),
        bound=_by_module(users, packages) if counts else (),
        left=left,
    )


def _hide(members: list[_Member]) -> tuple[str, list[int]]:
    """Hide the names of all members; if that fails, show them again.

    Returns:
        Why it failed, if it did; and how many names of each library are hidden now.
    """
    reason = ""
    try:
        for member in members:
            member.write(is_hidden=True)
        counts = [member.count_hidden() for member in members]
        for member, count in zip(members, counts):
            if count < len(member.hidden):
                raise OSError(errno.EIO, f"names of {member.path} are still found")
    except BaseException as error:
        for member in members:
            try:
                member.write(is_hidden=False)
            except own_errors(OSError):  # what stays hidden is counted
                continue
        if not isinstance(error, own_errors(OSError)):
            raise
        reason = f"{error.strerror or error}"
        counts = [member.count_hidden() for member in members]
    finally:
        LoaderNews.everything.note_hidden()
    return reason, list(filter(None, counts))


def _planned(image: Image, hides: re.Pattern[bytes] | None, keeps: re.Pattern[bytes]) -> _Member:
    symbols = SharedObject(image).table()
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
    return _Member(image, symbols, tuple(hidden))


def _has_runtime_ids(member: _Member) -> bool:
    kinds = member.symbols.table[4::SYMBOL]
    unique = [index for index in member.hidden if kinds[index] == UNIQUE_OBJECT]
    return any(map(is_runtime_id, member.names(unique)))


# --- what is let be -------------------------------------------------------------------------------


def _refuse_library(library: Library, is_own: bool, own: frozenset[str]) -> None:
    if matches(os.path.basename(library.path), GLOBAL_ON_PURPOSE):
        raise _RefusedError(f"{library.path} is a library that others rely on to be global")
    if not is_own:
        folders = " and ".join(sorted(own))
        raise _RefusedError(f"{library.path} lies outside the folders of {folders}")


def _refuse_what_breaks(members: list[_Member], others: list[Image]) -> None:
    for member in members:
        if _is_bound_lazily(member.image):
            raise _RefusedError(
                f"{member.path} was loaded with RTLD_LAZY: its first call of a hidden name would "
                "end the program"
            )
    sonames = {
        name: member.path
        for member in members
        for name in (member.image.soname, os.path.basename(member.path))
        if name
    }
    for image in others:
        for name in image.needed:
            if name in sonames:
                raise _RefusedError(f"{image.library.path} needs {sonames[name]}")


def _refuse_lazy_users(
    hidden: frozenset[int], everybody: Iterable[Image], resident: Resident
) -> None:
    """Refuse if an object will look up a hidden name, of which it has none, at its first call."""
    for image in filter(_is_bound_lazily, everybody):
        symbols = SharedObject(image).table()
        rows = zip(symbols.names, symbols.table[6::SYMBOL], symbols.table[7::SYMBOL])
        for name in [symbols.name(start) for start, low, high in rows if not (low or high)]:
            if resident.address(resident.program, name) in hidden:
                raise _RefusedError(
                    f"{image.library.path} was loaded with RTLD_LAZY: its first call of "
                    f"{name.decode('utf-8', 'replace')} would end the program"
                )


def _is_bound_lazily(image: Image) -> bool:
    """Return True if the loader looks up a library's functions at their first call.

    It leaves its own entry point in the third word of the procedure linkage table then, and
    only then.
    """
    table = image.address(_DT_PLTGOT)
    return DT_PLTRELSZ in image.tags and table > 0 and image.memory.number(table + 16) != 0


# --- who had bound to the names before, and stays so ----------------------------------------------


def _placed(member: _Member, resident: Resident) -> dict[int, int]:
    """Return address -> index of the names of a library that are to be hidden.

    A variable of each thread has no address; who is bound to one alone is not told.
    """
    values = memoryview(member.symbols.table).cast("Q")  # the value is the second of three
    kinds, found = member.symbols.table[4::SYMBOL], dict[int, int]()
    for index, name in zip(member.hidden, member.names(member.hidden)):
        if kinds[index] & 15 in _PLAIN:
            found[values[3 * index + 1] + member.image.base] = index
        elif kinds[index] & 15 == _BY_FUNCTION:
            found[resident.address(resident.handle(member.path), name)] = index
    found.pop(0, None)
    return found


def _users(
    later: list[Image], spans: list[range], hidden: frozenset[int]
) -> list[tuple[Image, frozenset[int]]]:
    """Return which libraries are bound to what is hidden, and to which addresses."""
    found = []
    for image in later:
        try:
            bound = bound_addresses(image, spans) & hidden
        except own_errors(OSError):  # not readable: nothing to say of it
            continue
        if bound:
            found.append((image, bound))
    return found


def _next_owner(
    member: _Member, placed: dict[int, int], users: Iterable[tuple[Image, frozenset[int]]]
) -> str:
    """Return who would get a member's names and calls into it himself; empty if nobody would.

    A system zlib that was loaded after a bundled one has bound its own calls to that: who got
    it now would work with halves of two versions. Nobody gets the names of a library without
    a soname, such as most extension modules; and those that it has only weakly are copies
    that each brings for itself.
    """
    for image, bound in users:
        own = SharedObject(image)
        names = member.names(placed[place] for place in bound if place in placed)
        if image.soname and any(map(own.has_global, names)):
            return image.library.path
    return ""


def _by_module(
    users: Iterable[tuple[Image, frozenset[int]]], packages: Packages
) -> tuple[tuple[str, int], ...]:
    """Return the modules of users, files where these are unknown, and how often they are bound."""
    counts: dict[str, int] = {}
    for image, bound in users:
        package = packages.of(image.library.path)
        name = package if package in sys.modules else os.path.basename(image.library.path)
        counts[name] = counts.get(name, 0) + len(bound)
    return tuple(counts.items())
