"""Take the names of a library back out of the global symbol scope, after the fact.

No call of the dynamic loader does that. Its look-up, however, skips every definition that is
marked hidden (``STV_HIDDEN``) in the symbol table of its library, while the library's own
references bind to it still. The table is marked in the memory of this process; files stay as
they are, and so does what was bound before.

Source: ``elf.h``; ``proc(5)``; the look-up predicate of glibc's ``elf/dl-lookup.c``.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from cudaguard.core.patterns import actions_of, matches, texts_of
from cudaguard.elf.image import SYMBOL, Image
from cudaguard.elf.loaded import first_entry, loaded_libraries
from cudaguard.elf.memory import Memory
from cudaguard.elf.process import uses_glibc
from cudaguard.elf.symbols import GlobalScope
from cudaguard.features.symbol_scope.facts import runtime_among
from cudaguard.features.symbol_scope.patterns import packages_of, pattern_of_names
from cudaguard.features.symbol_scope.repair.memory import write
from cudaguard.files import os
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
_GLOBAL = 1  # STB_GLOBAL
_SHOWN = (0, 3)  # STV_DEFAULT, STV_PROTECTED
_PLAIN = (0, 1, 2)  # STT_NOTYPE, STT_OBJECT, STT_FUNC


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


class _Member(NamedTuple):
    """A library to be changed, and how its symbol table looks afterwards."""

    image: Image
    symbols: Symbols
    hidden: tuple[int, ...]  # indices

    def addresses(self, indices: Iterable[int]) -> list[int]:
        """Return the addresses of names."""
        words = memoryview(self.symbols.table).cast("Q")  # the value is the second of three
        base = self.image.library.base
        return [words[3 * index + 1] + base for index in indices]

    def names(self, indices: Iterable[int]) -> list[bytes]:
        """Return names."""
        starts = memoryview(self.symbols.table).cast("I")
        return [self.symbols.name(starts[index * SYMBOL // 4]) for index in indices]


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
        hidden = {place for member in members for place in member.addresses(member.hidden)}
        _refuse_lazy_users(hidden, images.values(), scope)
        # Whatever was loaded before the first of them was bound before as well.
        first = min(everything.index(member.image.library) for member in members)
        later = [images[lib] for lib in everything[first:] if lib not in group]
        users = _users(members, hidden, later)
        bound = _by_module(users, packages)
        members, left = _without_mixed(members, users)
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


def _write_all(members: list[_Member]) -> None:
    """Mark the names of all members, or of none."""
    for written, member in enumerate(members):
        try:
            _write(member)
        except OSError:
            for earlier in members[:written]:
                _write(earlier, undo=True)
            raise


def _planned(image: Image, hides: re.Pattern[bytes] | None, keeps: re.Pattern[bytes]) -> _Member:
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
    return _Member(image, symbols, tuple(hidden))


def _is_global(member: _Member, scope: GlobalScope) -> bool:
    """Return True if names of this very library are found globally."""
    if _finds_any(member, member.hidden, scope):
        return True
    # None of those that are to be hidden may have its address in the table: take all names.
    table = member.symbols.table
    rows = enumerate(zip(table[4::SYMBOL], table[6::SYMBOL], table[7::SYMBOL]))
    defined = [index for index, (info, low, high) in rows if info > 15 and (low or high)]
    return _finds_any(member, defined, scope)


def _finds_any(member: _Member, indices: Sequence[int], scope: GlobalScope) -> bool:
    kinds = member.symbols.table[4::SYMBOL]
    # The others are per thread, or chosen by a function: their address is not in the table.
    some = [index for index in indices[:: max(1, len(indices) // _SAMPLES)]
            if kinds[index] & 15 in _PLAIN]  # fmt: skip
    some = some or [index for index in indices if kinds[index] & 15 in _PLAIN][:_SAMPLES]
    found = scope.addresses(member.names(some))
    return any(here == there for here, there in zip(member.addresses(some), found))


def _refuse_lazy_users(hidden: set[int], everybody: Iterable[Image], scope: GlobalScope) -> None:
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


def _refuse_what_breaks(members: list[_Member], others: list[Image]) -> None:
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


def _users(
    members: list[_Member], hidden: set[int], others: Iterable[Image]
) -> list[tuple[Image, frozenset[int]]]:
    """Return which of the others have bound to hidden names, and to which addresses."""
    spans = [member.image.segments()[0] for member in members]
    found = []
    for image in others:
        try:
            bound = image.bound_to(spans) & hidden
        except OSError:  # unloaded in the meantime, or not readable: nothing to say of it
            continue
        if bound:
            found.append((image, bound))
    return found


def _without_mixed(
    members: list[_Member], users: list[tuple[Image, frozenset[int]]]
) -> tuple[list[_Member], tuple[str, ...]]:
    """Take out the members whose place would go to a library that calls into them itself.

    A system zlib that was loaded after a bundled one has bound its own calls to that: who got it
    now would work with halves of two versions. Nobody gets the names of a library without a
    soname, such as most extension modules; and those that it has only weakly are copies that each
    brings for itself.
    """
    if not users:
        return members, ()
    kept, left = [], []
    for member in members:
        places = frozenset().union(*(bound for _, bound in users))
        pairs = zip(member.addresses(member.hidden), member.hidden)
        at = {place: member.names((index,))[0] for place, index in pairs if place in places}
        mixed = next(
            (
                image.library.path
                for image, bound in users
                if image.soname
                and any(image.binding(at[place]) == _GLOBAL for place in bound if place in at)
            ),
            None,
        )
        if mixed is None:
            kept.append(member)
        else:
            name = os.path.basename(member.image.library.path)
            left.append(f"{name} is left as it is: {mixed} was loaded after it and calls into it")
    return kept, tuple(left)


def _by_module(
    users: list[tuple[Image, frozenset[int]]], packages: Packages
) -> tuple[tuple[str, int], ...]:
    """Say of libraries which modules or packages they belong to, where that is known."""
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


def _write(member: _Member, *, undo: bool = False) -> None:
    """Mark the names in memory, or as they were."""
    table = bytearray(member.symbols.table)
    for index in () if undo else member.hidden:
        place = index * SYMBOL + 5  # st_other, whose lower two bits are the visibility
        table[place] = table[place] & ~3 | _HIDDEN
    write(member.symbols.address, table)
