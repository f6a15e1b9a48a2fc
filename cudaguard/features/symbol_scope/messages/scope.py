"""The wording of repairs of the symbol scope: kept local, taken back, shielded."""

from __future__ import annotations

from cudaguard.core.messages import FIX, too_late
from cudaguard.features.symbol_scope.messages.hijack import STAY_GLOBAL, own_runtime
from cudaguard.files import os
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.features.symbol_scope.repair.demotion import Demotion
    from cudaguard.model import Rule


SHIELDED = "loaded with RTLD_DEEPBIND, so that it finds its own names first"
KEPT_LOCAL = "kept in local symbol scope"


def went_global(rule: Rule, subject: str, source: str, where: str) -> Finding:
    """What a rule keeps local was loaded globally, since the mode forbids repairs."""
    return Finding(
        rule.id,
        f"Loaded into the global symbol scope: {subject}.",
        rule=rule.id,
        evidence=(f"{source}: RTLD_GLOBAL asked for at {where}",),
        consequence=rule.why,
        remedy="let cudaguard load it with local scope: "
        + ("give the rule the grade 'automatic'" if rule.grade == "report" else FIX),
        links=rule.links,
    )


def left_global(rule: Rule, subject: str, runtime: str, where: str) -> Finding:
    """What a rule keeps local was loaded globally, since local scope would break it."""
    return Finding(
        rule.id,
        f"{subject} was loaded with RTLD_GLOBAL in spite of rule {rule.id}: local scope would "
        "break its own C++ runtime.",
        rule=rule.id,
        evidence=(*own_runtime(runtime), f"RTLD_GLOBAL asked for at {where}"),
        consequence=rule.why,
        remedy=STAY_GLOBAL,
        links=rule.links,
    )


def hidden(done: Demotion) -> str:
    """Return what has become of a library whose names were hidden."""
    others = f" of it and {done.libraries - 1} of its dependencies" if done.libraries > 1 else ""
    return f"{done.names} names{others} hidden from the global symbol scope"


def _hidden_of(done: Demotion) -> str:
    return f"{os.path.basename(done.library)}: {hidden(done)}"


def taken_back_late(rule: Rule, module: str, done: Demotion, *, at_start: bool) -> Finding:
    """A library was global before its rule was in force, and not all of that could be undone."""
    late = too_late(rule, module, at_start=at_start)
    bound = ", ".join(f"{name} ({count} references)" for name, count in done.bound)
    evidence = (
        f"{done.library or 'its names'}: not hidden, as {done.reason}"
        if done.state != "done"
        else f"{_hidden_of(done)}; bound to them before, and still: {bound}"
    )
    return Finding(
        late.id,
        late.what,
        rule=rule.id,
        evidence=(evidence, *done.left),
        consequence=rule.why
        if done.state != "done"
        else f"what is loaded from now on is safe{' from the hidden names' if done.left else ''}; "
        f"what is listed may fail, and only a new start helps it: {rule.why}",
        remedy=STAY_GLOBAL if done.runtime else late.remedy,
        command="" if done.runtime else late.command,
        links=rule.links,
    )


def not_taken_back(rule: Rule, module: str, done: Demotion) -> Finding:
    """Names came into the global scope in spite of a rule, and could not all be taken back."""
    bound = ", ".join(f"{name} ({count} references)" for name, count in done.bound)
    remedy = "keep the library local where it is loaded, or import what it endangers before it"
    if done.state == "done":
        remedy = "import the modules listed before it"
        what = f"{module} made its names global, and others were bound before they were hidden."
        evidence = f"{_hidden_of(done)}; bound to them before, and still: {bound}"
    else:
        what = f"{module} made its names global, and they could not be hidden."
        evidence = f"{done.library or 'its names'}: not hidden, as {done.reason}"
    return Finding(
        rule.id,
        what,
        rule=rule.id,
        evidence=(evidence, *done.left),
        consequence=rule.why,
        remedy=STAY_GLOBAL if done.runtime else remedy,
        links=rule.links,
    )


def not_shielded(rule: Rule, extension: str, reason: str) -> Finding:
    """An extension was loaded as usual, although a rule wants it shielded."""
    return Finding(
        rule.id,
        f"{extension} was not shielded from the global symbol scope.",
        rule=rule.id,
        evidence=(reason,),
        consequence=rule.why,
        remedy="keep the library that takes the names local, or hide its symbols, by a rule of its "
        "own",
        links=rule.links,
    )
