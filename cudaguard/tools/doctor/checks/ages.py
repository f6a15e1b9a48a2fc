"""CG910: the age of the rules that act here."""

from __future__ import annotations

import time

from cudaguard.api import active_rules
from cudaguard.core.checks import Check
from cudaguard.system.site import Skipped
from cudaguard.tools.doctor.ages import MONTHS, aged, mended_by, seen_on
from cudaguard.tools.doctor.checks import guard_messages as wording
from cudaguard.tools.doctor.checks.rules import applying

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.system.site import Result, Site


def check(site: Site) -> Result:
    """Look at the rules in force whose conditions hold."""
    active = {rule.id for rule in active_rules()}
    rules = [rule for rule in applying(site) if rule.id in active]
    if not rules:
        raise Skipped("no rule acts here")
    findings = []
    for rule in rules:
        there = mended_by(rule, site.version)
        if there:
            findings.append(wording.mended(rule, there))
    old = aged(rules, time.strftime("%Y-%m-%d"))
    if old:
        findings.append(wording.long_ago(old, MONTHS))
    unseen = [rule for rule in rules if rule.id.startswith("CG") and not seen_on(rule)]
    if unseen:
        findings.append(wording.not_reproduced(unseen))
    return findings, f"rules that act here: {len(rules)}"


AGES = Check(
    "CG910",
    "age of the rules that act here",
    "Rules whose fault was last reproduced long ago, and rules for a fault that the installed "
    "release has fixed.",
    check,
)
