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
from cudaguard.features.symbol_scope.repair.users import Hidden, Member, by_module
from cudaguard.files import os
from cudaguard.system.packages import Packages
from cudaguard.system.symbol_families import GLOBAL_ON_PURPOSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.elf.loaded import Library
    from cudaguard.model import Rule

_MACHINES = ("x86_64", "AMD64", "aarch64") if sys.maxsize >> 32 else ()  # where it was tried
_SAMPLES = 16  # names of a library by which it is told whether it is global
_HIDDEN = 2  # STV_HIDDEN
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
    write(member.symbols.address, table)
