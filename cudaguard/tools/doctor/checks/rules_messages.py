"""The wording of rules that apply to what is installed."""

from __future__ import annotations

from cudaguard.core.messages import listed
from cudaguard.core.modes import INSTALL, install_call
from cudaguard.core.table import table
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.model import Rule, Severity

RULES = "CG901"
# Verbs of actions about what is done once a module is imported.
_AT_IMPORT = {"before", "late", "mapping", "needing", "opening"}
_LATER = {v for v, does in table.index.VERBS.items() if _AT_IMPORT.isdisjoint(does)} - {
    "disable_fusers"
}


def known_fault(rule: Rule, versions: Sequence[str], *, is_on: bool, is_guarded: bool) -> Finding:
    """Versions with a fault that a rule knows.

    Args:
        rule: It applies here.
        versions: What of its versions is installed, as in ``decord 0.6.0``.
        is_on: True if it is in force where the guard is.
        is_guarded: True if every Python of this environment starts with the guard.
    """
    remedy, command = "", ""
    severity: Severity = "warning" if is_at_import(rule) else "info"
    about = ", ".join(versions) or rule.watch[0]
    what = f"{about}: {rule.title or rule.why}"
    if not install_call(rule):
        severity = "warning"
        remedy = "follow the advice of the rule: cudaguard cannot repair this"
        command = f"cudaguard rules show {rule.id}"
    elif not is_on:
        severity = "info"
        what = f"Rule {rule.id} for {about} is off: {rule.title or rule.why}"
        cost = "" if install_call(rule) == INSTALL else "; it is off because it has a cost"
        remedy = f"switch the rule on if you see this fault{cost}"
        command = f"export CUDAGUARD_RULES=+{rule.id}"
    elif is_guarded:
        severity = "info"
        remedy = "do nothing: cudaguard is switched on here, and repairs it"
    else:
        remedy = "let cudaguard repair it: set CUDAGUARD=fix, or call cudaguard.install() first"
        command = "export CUDAGUARD=fix"
    return Finding(
        RULES,
        what,
        rule=rule.id,
        severity=severity,
        evidence=(f"reproduced {rule.verified}" if rule.verified else "reported, not reproduced",),
        consequence=rule.why if rule.title else "",
        remedy=remedy,
        command=command,
        links=rule.links[:1],
    )  # fmt: skip


def is_at_import(rule: Rule) -> bool:
    """Return True if a rule is about what an import breaks, and not about arrays or builds."""
    return any(_LATER.isdisjoint(action) for action in rule.actions) or bool(rule.needs)


def watched(rules: Sequence[Rule]) -> Finding:
    """Rules that watch over what is installed, in any version."""
    names = dict.fromkeys(rule.watch[0].partition(".")[0] for rule in rules)
    return Finding(
        RULES,
        f"cudaguard watches {listed(names)} when it is switched on.",
        severity="info",
        evidence=tuple(f"{rule.id}: {rule.title or rule.why}" for rule in rules),
        command="cudaguard rules list",
    )
