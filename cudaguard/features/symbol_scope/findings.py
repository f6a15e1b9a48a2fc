"""What is found of the global symbol scope: who put copies there, and what was repaired."""

from __future__ import annotations

from cudaguard.core.findings import (
    Kind,
    counted,
    have_it_repaired,
    listed,
    of_rule,
    too_late,
)
from cudaguard.core.rule_check import toml_text
from cudaguard.files import os
from cudaguard.files.text import RULE_LINE
from cudaguard.model import NamedTuple
from cudaguard.system.runtimes import unmarked
from cudaguard.system.symbol_families import FAMILIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.request import Request
    from cudaguard.features.symbol_scope.hiding import Hiding
    from cudaguard.model import Finding, Rule

KEPT_LOCAL = "kept in local symbol scope"
RELINK = (
    "use a release that links libstdc++.so.6, or rebuild it without -static-libstdc++ or "
    "with -Wl,--exclude-libs,ALL"
)
STAY_GLOBAL = f"{RELINK}; until then import it before other C++ libraries"
HIJACKED = Kind(
    "CG812",
    "a library put copies of other libraries' symbols into the global symbol scope",
    "SymbolScopeWarning",
    consequence="libraries loaded later use these copies, and may crash, hang or compute wrong "
    "results.",
    remedy="import that library after the others, or use the rule in the warning, which loads it "
    "with local scope",
    page="reference/rules.md",
)
STATIC_RUNTIME = Kind(
    "CG813",
    "an extension exports its own C++ runtime",
    "SymbolScopeWarning",
    consequence="it and libraries that use libstdc++.so.6, such as torch, may mix two "
    "runtimes. Texts then come out empty or cut, or the program crashes.",
    remedy=RELINK,
    page="howto/extensions.md",
    links=(
        "https://github.com/pytorch/pytorch/issues/109923",
        "https://github.com/CVCUDA/CV-CUDA/issues/113",
    ),
)
# When it was that names moved and nobody saw by whom: what is said of that, and what to do.
GUARD, CTYPES, UNSEEN = "guard", "ctypes", "unseen"
_NAMES_THE_LINE = "the message then names the line that does it"
_SINCE = {
    GUARD: (
        "before the guard was installed",
        f"call cudaguard.install() before the first import: {_NAMES_THE_LINE}",
    ),
    CTYPES: (
        "before `import ctypes`",
        f"put `import ctypes` directly after cudaguard.install(): {_NAMES_THE_LINE}",
    ),
    UNSEEN: (
        "by code that cudaguard does not see",
        (
            "find the code that opens it without Python's importer and ctypes.CDLL (cffi, "
            "_ctypes.dlopen, C code), and remove RTLD_GLOBAL there"
        ),
    ),
}
_MOST_NAMES, _MOST_DANGERS = 3, 2  # in a message
_PROGRAM = ("", "__main__", "__mp_main__")


class Hijack(NamedTuple):
    """A library that has come to own other people's names.

    Args:
        owner: Its file.
        package: The package that it belongs to, or an empty string.
        names: The symbols that tell: name, key of the family, and the file that owned it before.
    """

    owner: str
    package: str
    names: tuple[tuple[str, str, str], ...]


class Culprit(NamedTuple):
    """Who loaded it: a module, its line, and the line outside its package that imported it."""

    module: str
    where: str
    imported_at: str


def hijacked(
    hijacks: list[Hijack], load: NativeLoad | None, culprit: Culprit, since: str, runtime: str = ""
) -> Finding:
    """Copies of other people's symbols have come into the global scope, and no rule knows it.

    Args:
        hijacks: Who owns what now; never empty.
        load: What was loaded; None if nobody saw it.
        culprit: Who loaded it.
        since: If nobody saw it: one of `GUARD`, `CTYPES` and `UNSEEN`.
        runtime: The file among them that contains its own C++ runtime, if any.
    """
    what = os.path.basename(hijacks[0].owner)
    what += f" and {len(hijacks) - 1} more" if hijacks[1:] else ""
    keys = tuple(dict.fromkeys(family for hijack in hijacks for _, family, _ in hijack.names))
    cause: tuple[str, ...] = ()
    if load is None:
        when, remedy = _SINCE[since]
        what += f" was put into the global symbol scope {when}"
    else:
        actor = load.extension or culprit.module or "the program"
        what = f"{actor} put {what} into the global symbol scope"
        cause, remedy = _cause(load, culprit), _remedy(hijacks, load, culprit, keys)
    dangers = "; ".join(FAMILIES[key].danger for key in keys[:_MOST_DANGERS])
    return HIJACKED.found(
        f"{what}, with symbols of {listed(FAMILIES[key].title for key in keys)}.",
        *cause,
        *map(_taken, hijacks),
        own_runtime(runtime),
        consequence=f"libraries loaded from now on can use these copies: {dangers}.",
        remedy=STAY_GLOBAL if runtime else remedy,
    )


def own_runtime(library: str) -> str:
    """Return the evidence that a library must stay as it is; empty for no library."""
    words = "contains its own C++ runtime, and would break with local scope or hidden symbols"
    return library and f"{library} {words}"


def _cause(load: NativeLoad, culprit: Culprit) -> tuple[str, str]:
    if load.extension:
        how = f"imports {load.library}"
        by = f" at {load.flags_by[1]}" if load.flags_by[1] else ""
        flag = f"with RTLD_GLOBAL set by sys.setdlopenflags{by}"
    else:
        how, flag = f"loads {load.library}", "with RTLD_GLOBAL, by ctypes"
    if not load.is_global:
        flag = "which makes itself global"
    at = f" ({culprit.where})" if culprit.where else ""
    line = f"{culprit.module or 'the program'}{at} {how} {flag}"
    return line, f"imported at {culprit.imported_at}" if culprit.imported_at else ""


def _taken(hijack: Hijack) -> str:
    names = [name for name, _, _ in hijack.names]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    before = sorted({was for _, _, was in hijack.names if was})
    was = f", before to {listed(before)}" if before else ""
    several = "resolve" if len(names) > 1 else "resolves"
    return f"{', '.join(names[:_MOST_NAMES])}{more} now {several} to {hijack.owner}{was}"


def _remedy(
    hijacks: list[Hijack], load: NativeLoad, culprit: Culprit, keys: tuple[str, ...]
) -> str:
    asking, where = load.flags_by if load.extension else (culprit.module, culprit.where)
    if load.is_global and asking in _PROGRAM:
        call = "sys.setdlopenflags call" if load.extension else "call"
        return f"remove RTLD_GLOBAL from the {call}{f' at {where}' if where else ''}"
    if load.is_global:
        package, bundled = asking.partition(".")[0], ""
        actions: list[dict[str, object]] = [{"load_local": _pattern(load.library)}]
    else:
        package = (load.extension or culprit.module).partition(".")[0]
        bundled = next((hijack.package for hijack in hijacks if hijack.package), "")
        if package in _PROGRAM or not bundled.isidentifier():
            return (
                "ask its authors to load it without RTLD_GLOBAL; until then import the packages in "
                "danger before it"
            )
        actions = [{"hide_symbols": _pattern(hijack.owner), "names": keys} for hijack in hijacks]
    lines = (
        "save this rule as cudaguard.toml and set CUDAGUARD_CONFIG=cudaguard.toml:",
        "[[rules]]",
        'id = "LOCAL001"',
        f'watch = ["{package}"]',
        # What a wheel bundles lies in a folder named after the distribution, not the module.
        f"dist = [{toml_text(bundled)}]" if bundled not in ("", package) else "",
        f"actions = {toml_text(actions)}",
        f'why = "{package} puts its libraries into the global symbol scope"',
    )
    return RULE_LINE.join(filter(None, lines))


def _pattern(library: str) -> str:
    """Return a pattern for a library's file name that a new version of it still matches."""
    stem, so, _ = os.path.basename(library).partition(".so")
    if not so:
        return stem
    if ".cpython-" in stem:
        stem = stem.partition(".cpython-")[0] + ".*"
    name = unmarked(stem)  # what auditwheel puts in differs from release to release
    return f"{stem if name == stem else f'{name}-*'}{so}*"


def static_runtime(extension: str, library: str, names: tuple[str, ...], where: str) -> Finding:
    """An extension contains a C++ runtime of its own and exports it."""
    some, more = (f"{len(names)} objects", " ...") if names[1:] else ("1 object", "")
    return STATIC_RUNTIME.found(
        f"{extension} exports its own C++ runtime.",
        f"imported at {where}" if where else "",
        f"{library} does not need libstdc++.so.6, and exports {some} of which the loader keeps one "
        f"for all libraries: {names[0]}{more}",
    )


# --- repairs --------------------------------------------------------------------------------------


def went_global(request: Request, subject: str, *, is_file: bool) -> Finding:
    """What a rule keeps local was loaded globally by a module, since the mode forbids repairs."""
    actor = request.by.partition(".")[0] or "The program"
    remedy, command = have_it_repaired(request.rule)
    at = f": RTLD_GLOBAL requested at {request.where}" if request.where else ""
    return of_rule(
        request.rule,
        f"{actor} loaded {subject} with RTLD_GLOBAL."
        if is_file
        else f"{request.name} loads its extensions with RTLD_GLOBAL.",
        f"{request.name}{at}",
        remedy=f"let cudaguard load it with local scope: {remedy}",
        command=command,
    )


def left_global(rule: Rule, subject: str, runtime: str, where: str) -> Finding:
    """What a rule keeps local was loaded globally, since local scope would break it."""
    return of_rule(
        rule,
        f"{subject} stays in the global symbol scope: local scope would break its C++ runtime.",
        f"RTLD_GLOBAL requested at {where}" if where else "",
        own_runtime(runtime),
        remedy=STAY_GLOBAL,
    )


def hidden(done: Hiding) -> str:
    """Return what has become of a library whose names were hidden."""
    others = f" of it and {done.libraries - 1} of its dependencies" if done.libraries > 1 else ""
    return f"{counted(done.names, 'symbols')}{others} hidden from the global symbol scope"


def _evidence(done: Hiding) -> tuple[str, ...]:
    if done.state == "done":
        what = f"{os.path.basename(done.library)}: {hidden(done)}"
    else:
        how = "not hidden" if done.state != "half" else f"{hidden(done)}, and not the others"
        what = f"{done.library or 'its symbols'}: {how}, as {done.reason}"
    users = ", ".join(f"{name} ({counted(count, 'references')})" for name, count in done.bound)
    return (f"{what}; still bound to them: {users}" if users else what, *done.left)


def taken_back_late(rule: Rule, module: str, done: Hiding, *, at_start: bool) -> Finding:
    """A library was global before its rule was in force, and not all of that could be undone."""
    consequence = rule.why
    if done.state == "done" and done.bound:
        consequence = (
            "libraries loaded from now on do not use the hidden symbols. Those listed still do, "
            "and may fail."
        )
    late = too_late(rule, module, at_start=at_start)
    late = late.replace(evidence=_evidence(done), consequence=consequence)
    return late.replace(remedy=STAY_GLOBAL, command="") if done.runtime else late


def not_taken_back(rule: Rule, module: str, done: Hiding) -> Finding:
    """Names came into the global scope in spite of a rule, and could not all be taken back."""
    if done.state == "done":
        fault, remedy = (
            "some libraries use them",
            f"import the libraries listed above before {module}",
        )
    else:
        fault = "they could not all be hidden" if done.names else "they could not be hidden"
        remedy = f"load it without RTLD_GLOBAL, or import the packages in danger before {module}"
    return of_rule(
        rule,
        f"{module} put its symbols into the global scope, and {fault}.",
        *_evidence(done),
        remedy=STAY_GLOBAL if done.runtime else remedy,
    )
