"""Take the names of a library back out of the global symbol scope, after the fact.

No call of the dynamic loader does that. Its look-up, however, skips every definition that is
marked hidden (``STV_HIDDEN``) in the symbol table of its library, while the library's own
references bind to it still. The table is marked in the memory of this process; files stay as
they are, and so does what was bound before.

Source: ``elf.h``; ``proc(5)``; the look-up predicate of glibc's ``elf/dl-lookup.c``.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import NamedTuple

from cudaguard.actions.scope import packages_of
from cudaguard.probe.facts import uses_glibc
from cudaguard.probe.image import SYMBOL, Image
from cudaguard.probe.loaded import Memory, first_entry, loaded_libraries
from cudaguard.probe.packages import Packages
from cudaguard.probe.symbols import GlobalScope
from cudaguard.rules.families import FAMILIES, GLOBAL_ON_PURPOSE
from cudaguard.rules.patterns import arguments, matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from cudaguard.model import Rule
    from cudaguard.probe.image import Symbols
    from cudaguard.probe.loaded import Library

_SAMPLES = 16  # names of a library by which it is told whether it is global
_HIDDEN = 2  # STV_HIDDEN


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
    """

    state: str
    reason: str = ""
    library: str = ""
    libraries: int = 0
    names: int = 0
    bound: tuple[tuple[str, int], ...] = ()


class _RefusedError(Exception):
    """The specification excludes this demotion; the text says why."""


class _Member(NamedTuple):
    """A library to be changed, and how its symbol table looks afterwards."""

    image: Image
    symbols: Symbols
    hidden: tuple[int, ...]  # indices

    def addresses(self, step: int = 1) -> list[int]:
        """Return the addresses of the hidden names, or of every so many of them."""
        words = memoryview(self.symbols.table).cast("Q")  # the value is the second of three
        base = self.image.library.base
        return [words[3 * index + 1] + base for index in self.hidden[::step]]


def demote(rule: Rule, machine: str) -> Demotion:
    """Hide the names of the libraries that a rule names, and of what their package bundles.

    Args:
        rule: A rule with the actions ``demote``, ``hide`` and perhaps ``keep``.
        machine: Hardware name of this machine.
    """
    if machine not in ("x86_64", "AMD64") or not uses_glibc():
        return Demotion("refused", "it is supported on x86-64 with glibc only")
    try:
        with Memory() as memory:
            return _demote(rule, memory)
    except _RefusedError as refused:
        return Demotion("refused", str(refused))
    except OSError as error:
        return Demotion("failed", f"{error.strerror or error}")


def _demote(rule: Rule, memory: Memory) -> Demotion:
    everything = loaded_libraries(memory, first_entry())
    patterns = arguments(rule, "demote")
    named = [lib for lib in everything if matches(os.path.basename(lib.path), patterns)]
    if not named:
        return Demotion("absent")
    packages = Packages()
    library = named[0].path
    own = packages_of(rule)
    group = [lib for lib in everything if packages.of(lib.path).lower() in own]
    for lib in named:
        if matches(os.path.basename(lib.path), GLOBAL_ON_PURPOSE):
            raise _RefusedError(f"{lib.path} is a library that others rely on to be global")
        if lib not in group:
            raise _RefusedError(
                f"{lib.path} lies outside the folders of {' and '.join(sorted(own))}"
            )
    scope = GlobalScope()
    hides = _pattern_of_names(arguments(rule, "hide"))
    keeps = _pattern_of_names(arguments(rule, "keep"))
    members = [_planned(Image(memory, lib), hides, keeps) for lib in named]
    if not any(_is_global(member, scope) for member in members):
        return Demotion("local", library=library)
    members += [
        _planned(Image(memory, lib), hides, keeps)
        for lib in group
        if lib not in named and not matches(os.path.basename(lib.path), GLOBAL_ON_PURPOSE)
    ]
    members = [member for member in members if _is_global(member, scope)]
    _refuse_what_breaks(members, [Image(memory, lib) for lib in everything if lib not in group])
    # Whatever was loaded before the first of them was bound before as well.
    first = min(everything.index(member.image.library) for member in members)
    later = [lib for lib in everything[first:] if lib not in group]
    bound = _by_module(_bound(members, memory, later), packages)
    for member in members:
        _write(member)
    shown = [member.image.library.path for member in members if _is_global(member, scope)]
    if shown:
        return Demotion("failed", f"names of {shown[0]} are still found", library)
    return Demotion(
        "done", "", library, len(members), sum(len(member.hidden) for member in members), bound
    )


def _pattern_of_names(words: tuple[str, ...]) -> re.Pattern[bytes] | None:
    """Return what matches a name, zero byte included, in a string table; None for every name."""
    import re

    if "*" in words:
        return None
    names = [n for word in words for n in (FAMILIES[word].names if word in FAMILIES else (word,))]
    # Nothing runs past the zero byte, so that names need not be cut out one by one.
    signs = {"*": r"[^\0]*", "?": r"[^\0]"}
    bodies = ("".join(signs.get(sign) or re.escape(sign) for sign in name) for name in names)
    return re.compile(rf"(?:{'|'.join(bodies) or '(?!)'})\0".encode())


def _planned(
    image: Image, hides: re.Pattern[bytes] | None, keeps: re.Pattern[bytes] | None
) -> _Member:
    symbols = image.symbols()
    table, strings = symbols.table, symbols.strings
    rows = zip(symbols.names, table[4::SYMBOL], table[6::SYMBOL], table[7::SYMBOL])
    hidden = [
        index
        for index, (name, info, section, section_high) in enumerate(rows)
        # Defined (its section is known), and not local to the file anyway.
        if (section or section_high)
        and info > 15
        and (hides is None or hides.match(strings, name))
        and not (keeps is not None and keeps.match(strings, name))
    ]
    return _Member(image, symbols, tuple(hidden))


def _is_global(member: _Member, scope: GlobalScope) -> bool:
    """Are names of this library, as opposed to others of the same name, found globally?"""
    symbols, step = member.symbols, max(1, len(member.hidden) // _SAMPLES)
    starts = symbols.names
    found = scope.addresses(symbols.name(starts[index]) for index in member.hidden[::step])
    return any(here == there for here, there in zip(member.addresses(step), found))


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


def _bound(
    members: list[_Member], memory: Memory, others: Iterable[Library]
) -> tuple[tuple[str, int], ...]:
    """Return which of the others have bound to hidden names, and to how many."""
    spans = [member.image.segments()[0] for member in members]
    hidden = {address for member in members for address in member.addresses()}
    found = []
    for lib in others:
        try:
            count = len(hidden & Image(memory, lib).bound_to(spans))
        except OSError:  # unloaded in the meantime, or not readable: nothing to say of it
            continue
        if count:
            found.append((lib.path, count))
    return tuple(found)


def _by_module(
    bound: tuple[tuple[str, int], ...], packages: Packages
) -> tuple[tuple[str, int], ...]:
    """Say of libraries which modules or packages they belong to, where that is known."""
    modules = {
        os.path.realpath(file): name
        for name, module in list(sys.modules.items())
        for file in [getattr(getattr(module, "__spec__", None), "origin", None)]
        if isinstance(file, str) and ".so" in file
    }
    counts: dict[str, int] = {}
    for path, count in bound:
        package = packages.of(path)
        if package in sys.modules and package != modules.get(path):
            name = package
        else:
            name = modules.get(path) or os.path.basename(path)
        counts[name] = counts.get(name, 0) + count
    return tuple(counts.items())


def _write(member: _Member) -> None:
    """Mark the names in memory."""
    table = bytearray(member.symbols.table)
    for index in member.hidden:
        place = index * SYMBOL + 5  # st_other, whose lower two bits are the visibility
        table[place] = table[place] & ~3 | _HIDDEN
    try:
        _write_as_debugger(member.symbols.address, table)
    except OSError:  # a hardened kernel
        _write_unprotected(member.symbols.address, table)


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
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            area, flags = line.split()[:2]
            start, _, stop = area.partition("-")
            found.append((int(start, 16), int(stop, 16), sum(bits.get(sign, 0) for sign in flags)))
    return found
