"""The wording of repairs of the symbol scope: kept local, taken back."""

from __future__ import annotations

from cudaguard.core.messages import counted, have_it_repaired, too_late
from cudaguard.features.symbol_scope.messages.hijack import STAY_GLOBAL, own_runtime
from cudaguard.files import os
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.request import Opening
    from cudaguard.features.symbol_scope.repair.demotion import Demotion
    from cudaguard.model import Rule


KEPT_LOCAL = "kept in local symbol scope"


def went_global(rule: Rule, opening: Opening, by: str, where: str) -> Finding:
    """What a rule keeps local was loaded globally, since the mode forbids repairs.

    Args:
        rule: The rule.
        opening: What was loaded.
        by: The module that loaded it; may be empty.
        where: Its line; may be empty.
    """
    actor = by.partition(".")[0] or "The program"
    remedy, command = have_it_repaired(rule)
    at = f": RTLD_GLOBAL requested at {where}" if where else ""
    return Finding(
        rule.id,
        f"{actor} loaded {opening.subject} with RTLD_GLOBAL."
        if opening.is_file
        else f"{opening.source} loads its extensions with RTLD_GLOBAL.",
        rule=rule.id,
        evidence=(f"{opening.source}{at}",),
        consequence=rule.why,
        remedy=f"let cudaguard load it with local scope: {remedy}",
        command=command,
        links=rule.links,
    )


def left_global(rule: Rule, subject: str, runtime: str, where: str) -> Finding:
    """What a rule keeps local was loaded globally, since local scope would break it."""
    return Finding(
        rule.id,
        f"{subject} stays in the global symbol scope: local scope would break its C++ runtime.",
        rule=rule.id,
        evidence=(
            *((f"RTLD_GLOBAL requested at {where}",) if where else ()),
            *own_runtime(runtime),
        ),
        consequence=rule.why,
        remedy=STAY_GLOBAL,
        links=rule.links,
    )


def hidden(done: Demotion) -> str:
    """Return what has become of a library whose names were hidden."""
    others = f" of it and {done.libraries - 1} of its dependencies" if done.libraries > 1 else ""
    return f"{counted(done.names, 'symbols')}{others} hidden from the global symbol scope"


def _bound(done: Demotion) -> str:
    return ", ".join(f"{name} ({counted(count, 'references')})" for name, count in done.bound)


def _hidden_of(done: Demotion) -> str:
    return f"{os.path.basename(done.library)}: {hidden(done)}"


def taken_back_late(rule: Rule, module: str, done: Demotion, *, at_start: bool) -> Finding:
    """A library was global before its rule was in force, and not all of that could be undone."""
    late = too_late(rule, module, at_start=at_start)
    bound = _bound(done)
    evidence = (
        f"{done.library or 'its symbols'}: not hidden, as {done.reason}"
        if done.state != "done"
        else f"{_hidden_of(done)}; still bound to them: {bound}"
    )
    return Finding(
        late.id,
        late.what,
        rule=rule.id,
        evidence=(evidence, *done.left),
        consequence=rule.why
        if done.state != "done"
        else "libraries loaded from now on do not use the hidden symbols. Those listed still do, "
        "and may fail.",
        remedy=STAY_GLOBAL if done.runtime else late.remedy,
        command="" if done.runtime else late.command,
        links=rule.links,
    )


def not_taken_back(rule: Rule, module: str, done: Demotion) -> Finding:
    """Names came into the global scope in spite of a rule, and could not all be taken back."""
    bound = _bound(done)
    remedy = f"load it without RTLD_GLOBAL, or import the packages in danger before {module}"
    if done.state == "done":
        remedy = f"import the libraries listed above before {module}"
        what = f"{module} put its symbols into the global scope, and some libraries use them."
        evidence = f"{_hidden_of(done)}; still bound to them: {bound}"
    else:
        what = f"{module} put its symbols into the global scope, and they could not be hidden."
        evidence = f"{done.library or 'its symbols'}: not hidden, as {done.reason}"
    return Finding(
        rule.id,
        what,
        rule=rule.id,
        evidence=(evidence, *done.left),
        consequence=rule.why,
        remedy=STAY_GLOBAL if done.runtime else remedy,
        links=rule.links,
    )
