"""CG901, CG910: the rules that apply to what is installed, and their age."""

from __future__ import annotations

import re
import time

from cudaguard.api import active_rules
from cudaguard.config import read_environment
from cudaguard.core import decide
from cudaguard.core.checks import Check
from cudaguard.core.modes import install_call, repairs_by
from cudaguard.system import lending
from cudaguard.system.site import Skipped
from cudaguard.system.torch_build import folder_of
from cudaguard.system.versions import in_range, required_name
from cudaguard.tools.catalog import RULES
from cudaguard.tools.doctor.checks import messages as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cudaguard.model import Rule
    from cudaguard.system.site import Result, Site

_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)\b")


def check_rules(site: Site) -> Result:
    """Tell what the guard would do here, and what it would do if asked."""
    active = {rule.id for rule in active_rules()}
    here = applying(site)
    if not here:
        raise Skipped("no package that a rule watches is installed")
    settings, _ = read_environment(site.environ)
    is_guarded = repairs_by(settings) and is_there(site)
    findings, general = [], []
    for rule in sorted(here, key=lambda rule: rule.id):
        is_on, versions = rule.id in active, affected(site, rule)
        # What is only looked at when the program calls it is no fault of what is installed.
        if versions or not (install_call(rule) or rule.actions):
            findings.append(wording.known_fault(rule, versions, is_on=is_on, is_guarded=is_guarded))
        elif is_on:
            general.append(rule)
    if general:
        findings.append(wording.watched(general))
    return findings, f"rules about what is installed: {len(here)}"


def applying(site: Site) -> list[Rule]:
    """Return the rules, in force or not, whose conditions hold and whose module is there."""
    rules = {rule.id: rule for rule in (*RULES, *active_rules())}
    there = (
        rule
        for rule in rules.values()
        if any(folder_of(name.partition(".")[0]) for name in rule.watch)
    )
    return decide.applying(there, site.facts)


def is_there(site: Site) -> bool:
    """Return False if another environment is looked at, and has no cudaguard."""
    return not lending.host or site.version("cudaguard") is not None


def affected(site: Site, rule: Rule) -> list[str]:
    """Return the installed versions that make a rule apply, as in ``decord 0.6.0``."""
    names = [*map(required_name, rule.dist), *rule.when.get("dists", {})]
    found = {name: site.version(name) for name in names}
    return [f"{name} {version}" for name, version in found.items() if version]


def check_ages(site: Site) -> Result:
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
    today = time.strftime("%Y-%m-%d")
    days = [(rule, seen_on(rule)) for rule in rules]
    old = [(rule, day) for rule, day in days if day and is_long_ago(day, today)]
    if old:
        findings.append(wording.long_ago(old))
    unseen = [rule for rule, day in days if rule.id.startswith("CG") and not day]
    if unseen:
        findings.append(wording.not_reproduced(unseen))
    return findings, f"rules that act here: {len(rules)}"


def seen_on(rule: Rule) -> str:
    """Return the day when the fault of a rule was last reproduced, empty if it was not."""
    match = _DAY.match(rule.verified or "")
    return match[0] if match else ""


def is_long_ago(day: str, today: str) -> bool:
    """Return True if a year or more is between two days, as in ``2026-11-20``."""
    return f"{int(day[:4]) + 1}{day[4:]}" <= today


def mended_by(rule: Rule, version_of: Callable[[str], str | None]) -> str:
    """Return what is installed and has the fault no longer, as in ``cupy 13.2.0``; else empty.

    Args:
        rule: Its `fixed_in` is a distribution and a version, or a version of what `dist` names.
        version_of: Returns the version of what is installed.
    """
    name, _, version = (rule.fixed_in or "").rpartition(" ")
    if not name and rule.dist:
        name = required_name(rule.dist[0])
    if not name or not re.fullmatch(r"\d+(\.\w+)*", version):
        return ""
    there = version_of(name)
    return f"{name} {there}" if there and in_range(there, f">={version}") else ""


KNOWN_FAULTS = Check(
    "CG901",
    "known faults of installed packages",
    "Lists the known faults of installed packages and how cudaguard handles each.",
    check_rules,
)

AGES = Check(
    "CG910",
    "age of the rules that act here",
    "Rules whose fault was last reproduced long ago, and rules for a fault that the installed "
    "release has fixed.",
    check_ages,
)
