"""Findings about the global symbol scope: who put copies there, and what was repaired."""

from __future__ import annotations

from itertools import islice

from cudaguard.core.findings import FIX, Kind, counted, have_it_repaired, listed, of_rule, sentence
from cudaguard.core.rule_check import rule_to_save
from cudaguard.core.table import github
from cudaguard.files import matches, os
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system.facts import Packages
from cudaguard.system.runtimes import FAMILIES, unmarked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.findings import Finding
    from cudaguard.core.repairs import Request
    from cudaguard.core.rule import Rule
    from cudaguard.elf.interposition import Interposed

KEPT_LOCAL = "kept in local symbol scope"
RELINK = (
    "install a version that links libstdc++.so.6, or rebuild it without -static-libstdc++ or "
    "with -Wl,--exclude-libs,ALL"
)
STAY_GLOBAL = f"{RELINK}; until then import it before other C++ libraries"
BY_FIX = "mode 'fix' binds it to its own symbols"
INTERPOSED = Kind(
    "CG812",
    "a library uses symbols of another library instead of its own",
    "SymbolScopeWarning",
    consequence="It may crash, hang or compute wrong results.",
    remedy="import that library after the others, or use the rule in the warning, which loads it "
    "with local scope",
    page="reference/rules.md",
)
STATIC_RUNTIME = Kind(
    "CG813",
    "there is a second C++ runtime in the process",
    "SymbolScopeWarning",
    consequence="It and libraries that use libstdc++.so.6, such as torch, may mix two "
    "runtimes. Strings then come out empty or truncated, or the program crashes.",
    remedy=RELINK,
    page="howto/extensions.md",
    links=github("pytorch/pytorch/issues/109923", "CVCUDA/CV-CUDA/issues/113"),
)
# When it was that names moved and nobody saw by whom: what is said of that, and what to do.
_NAMES_THE_LINE = "the message then names the line that does it"
_SINCE = {
    "guard": (
        "before the guard was installed",
        f"call cudaguard.install() before the first import: {_NAMES_THE_LINE}",
    ),
    "unseen": (
        "by code that cudaguard does not see",
        (
            "find the code that opens it without Python's importer and ctypes.CDLL (cffi, "
            "_ctypes.dlopen, C code), and remove RTLD_GLOBAL there"
        ),
    ),
}
_MOST_NAMES, _MOST_DANGERS, _MOST_FILES = 3, 2, 3  # in a message
_MOST_ASKED = 200
_LONGEST = 80  # characters of a name with its parameters
_PROGRAM = ("", "__main__", "__mp_main__")


class Interposer(NamedTuple):
    """A library in the global scope, and how it came there."""

    file: str  # its file, links resolved
    package: str  # the package that it belongs to, or an empty string
    load: NativeLoad | None  # what was loaded then; None if that was not seen
    since: str  # otherwise why not: a key of `_SINCE`
    module: str = ""  # who loaded it
    where: str = ""  # its line
    imported_at: str = ""  # the line outside its package that imported that
    is_known: bool = False  # does a rule tell of it, or handle it?
    is_let_be: bool = False  # does a rule know that it does no harm here?


def bound_to_own(names: Sequence[Interposed]) -> str:
    """Return what has become of a library that others would have answered for."""
    first, *others = dict.fromkeys(os.path.basename(name.by) for name in names)
    more = f" and {counted(len(others), 'other libraries')}" if others else ""
    return f"bound to its own copies of {_called(names)}, not to those of {first}{more}"


def interposed(
    bound: str, names: Sequence[Interposed], interposer: Interposer, runtime: str, why: str
) -> Finding:
    """Return that a library uses symbols of others, and no rule handles that.

    All came with one load; `interposer` is the library of the first, `runtime` the file with a
    C++ runtime of its own, if any. `why` is empty where it was bound before it was seen.
    """
    pairs: dict[tuple[str, str], list[Interposed]] = {}
    for name in names:
        pairs.setdefault((name.by, name.own), []).append(name)
    files = list(dict.fromkeys(by for by, _ in pairs))
    library = os.path.basename(files[0]) + (f" and {len(files) - 1} more" if files[1:] else "")
    were = "were" if files[1:] else "was"
    package, load = interposer.package, interposer.load
    of = f" ({package})" if package and not library.startswith(package) else ""
    keys = _families(names)
    if load is None:
        when, remedy = _SINCE[interposer.since]
        cause: tuple[str, ...] = (f"{library} {were} put into the global symbol scope {when}",)
    else:
        cause, remedy = _cause(load, interposer), _remedy(interposer, load)
    if why.endswith(BY_FIX):
        remedy = f"{FIX}; or {remedy}"
    dangers = "; ".join(FAMILIES[key].danger for key in keys[:_MOST_DANGERS])
    return INTERPOSED.found(
        f"{bound} uses {_called(names)} of {library}{of} instead of its own.",
        *cause,
        *map(_taken, islice(pairs.values(), _MOST_FILES)),
        own_runtime(runtime) or (f"not repaired: {why}" if why else ""),
        consequence=f"{sentence(dangers)}." if dangers else INTERPOSED.consequence,
        remedy=STAY_GLOBAL if runtime else remedy,
    )


def taken_over(path: str, library: str, where: str) -> Finding:
    """A shared library is first mapped by one that has a copy of its functions, and uses these."""
    name, by = map(os.path.basename, (path, library))
    return INTERPOSED.found(
        f"{name} uses functions of {by} instead of its own.",
        f"loaded at {where}" if where else "",
        f"{library} has zlib's functions itself, and is the first to need {path}",
        consequence=f"{sentence(FAMILIES['zlib'].danger)}.",
        remedy=f"{FIX}; or put import zlib before that import",
    )


def _taken(names: Sequence[Interposed]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    several, (_, by, own) = "resolve" if names[1:] else "resolves", names[0]
    return f"{', '.join(_shown(names[:_MOST_NAMES]))}{more} {several} to {by}, not {own}"


def _families(names: Sequence[Interposed]) -> tuple[str, ...]:
    """Return the families that the names are of, the worst first; none if most are of none."""
    some = names[:: len(names) // _MOST_ASKED + 1]
    of = [[key for key, family in FAMILIES.items() if matches(n.name, family.names)] for n in some]
    if 2 * of.count([]) > len(of):
        return ()
    return tuple(key for key in FAMILIES if any(key in keys for keys in of))


def _called(names: Sequence[Interposed]) -> str:
    if keys := _families(names):
        return listed(FAMILIES[key].title for key in keys)
    (first,) = _shown(names[:1])
    return f"{first}{f' and {len(names) - 1} more symbols' if names[1:] else ''}"


def _shown(names: Sequence[Interposed]) -> list[str]:
    from cudaguard.elf.library_facts import in_short, readable

    both = readable(name.name for name in names)
    return [text if len(text) <= _LONGEST or in_short(n) == n else in_short(n) for n, text in both]


def own_runtime(library: str) -> str:
    """Return the evidence that a library must stay as it is; empty for no library."""
    return library and f"{library} contains its own C++ runtime, and would break with local scope"


def _cause(load: NativeLoad, interposer: Interposer) -> tuple[str, str]:
    if load.extension:
        how = f"imports {load.library}"
        by = f" at {load.flags_by[1]}" if load.flags_by[1] else ""
        flag = f"with RTLD_GLOBAL set by sys.setdlopenflags{by}"
    else:
        how, flag = f"loads {load.library}", "with RTLD_GLOBAL, by ctypes"
    if not load.is_global:
        flag = "which makes itself global"
    at = f" ({interposer.where})" if interposer.where else ""
    line = f"{interposer.module or 'the program'}{at} {how} {flag}"
    return line, f"imported at {interposer.imported_at}" if interposer.imported_at else ""


def _remedy(interposer: Interposer, load: NativeLoad) -> str:
    called_by = interposer.module, interposer.where
    asking, where = load.flags_by if load.extension else called_by
    if load.is_global and asking in _PROGRAM:
        call = "sys.setdlopenflags call" if load.extension else "call"
        return f"remove RTLD_GLOBAL from the {call}{f' at {where}' if where else ''}"
    if not load.is_global:
        return (
            "ask its authors to load it without RTLD_GLOBAL; until then import the packages in "
            "danger before it"
        )
    package = asking.partition(".")[0]
    why = f"{package} puts its libraries into the global symbol scope"
    return rule_to_save(package, {"load_local": _pattern(load.library)}, why)


def _pattern(library: str) -> str:
    """Return a pattern for a library's file name that a new version of it still matches."""
    stem, so, _ = os.path.basename(library).partition(".so")
    if not so:
        return stem
    if ".cpython-" in stem:
        stem = stem.partition(".cpython-")[0] + ".*"
    name = unmarked(stem)  # what auditwheel puts in differs from release to release
    return f"{stem if name == stem else f'{name}-*'}{so}*"


def static_runtime(
    extension: str, library: str, names: tuple[str, ...], where: str, why: str
) -> Finding:
    """An extension contains a C++ runtime of its own and exports it."""
    some, more = (f"{len(names)} objects", " ...") if names[1:] else ("1 object", "")
    return STATIC_RUNTIME.found(
        f"{extension} exposes its own C++ runtime to every library loaded after it.",
        f"imported at {where}" if where else "",
        f"{library} does not need libstdc++.so.6, and exports {some} of which the loader keeps one "
        f"for all libraries: {names[0]}{more}",
        f"not repaired: {why}" if why else "",
        remedy=RELINK if why else f"{FIX}, which keeps that runtime to itself; or {RELINK}",
    )


def renamed_runtime(library: str, runtime: str, why: str) -> Finding:
    """A package has a C++ runtime under a name of its own."""
    other = "install a version that uses libstdc++.so.6"
    return STATIC_RUNTIME.found(
        f"{os.path.basename(library)} uses its own C++ runtime, {os.path.basename(runtime)}.",
        f"{library} needs {runtime}",
        f"not repaired: {why}" if why else "",
        remedy=other if why else f"{FIX}, which keeps that runtime to itself; or {other}",
    )


def second_runtime(library: str, there: str, *, is_newer: bool) -> Finding:
    """A program opens a second file of the C++ runtime."""
    package = Packages().of(library) or "the package that does this"
    sooner = f"import {package} before other packages in C++, so that there is only this one"
    return STATIC_RUNTIME.found(
        f"{os.path.basename(library)} is loaded a second time, from another file.",
        f"loaded is {library}, beside {there}",
        "it is newer" if is_newer else "",
        consequence="They share state: strings are empty or truncated, or the program crashes.",
        remedy=sooner if is_newer else f"{FIX}, which uses the one that is there; or {sooner}",
    )


# --- repairs --------------------------------------------------------------------------------------


def went_global(request: Request, subject: str, *, is_file: bool) -> Finding:
    """A library that a rule keeps local was loaded globally, since the mode forbids repairs."""
    actor = request.by.partition(".")[0].replace("__main__", "") or "The program"
    remedy, command = have_it_repaired(request.rule)
    at = f": RTLD_GLOBAL requested at {request.where}" if request.where else ""
    return of_rule(
        request.rule,
        f"{actor} exposes {subject} to every library loaded after it."
        if is_file
        else f"{request.name} exposes its extensions to every library loaded after them.",
        f"{request.name}{at or ': loaded with RTLD_GLOBAL'}",
        remedy=f"let cudaguard load it with local scope: {remedy}",
        command=command,
    )


def left_global(rule: Rule, subject: str, runtime: str, where: str) -> Finding:
    """A library that a rule keeps local was loaded globally, since local scope would break it."""
    return of_rule(
        rule,
        f"{subject} stays exposed to later libraries: local scope would break its C++ runtime.",
        f"RTLD_GLOBAL requested at {where}" if where else "",
        own_runtime(runtime),
        remedy=STAY_GLOBAL,
    )
