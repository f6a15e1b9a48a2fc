"""CG910: are the rules that act here up to date?"""

from __future__ import annotations

import time

from cudaguard.doctor.rules import applying
from cudaguard.doctor.site import Skipped
from cudaguard.policy.ages import MONTHS, aged, mended_by, seen_on
from cudaguard.report.doctor import guard as wording
from cudaguard.wiring import active_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.doctor.site import Result, Site


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
