"""CG901: the rules that apply to what is installed."""

from __future__ import annotations

from cudaguard.api import active_rules
from cudaguard.config import read_environment
from cudaguard.core import decide
from cudaguard.core.checks import Check
from cudaguard.core.modes import install_call, repairs_by
from cudaguard.system import lending
from cudaguard.system.site import Skipped
from cudaguard.system.torch_build import folder_of
from cudaguard.system.versions import required_name
from cudaguard.tools.catalog import RULES
from cudaguard.tools.doctor.checks import messages as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Rule
    from cudaguard.system.site import Result, Site


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


KNOWN_FAULTS = Check(
    "CG901",
    "known faults of installed packages",
    "Lists the known faults of installed packages and how cudaguard handles each.",
    check_rules,
)
