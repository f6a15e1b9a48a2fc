"""CG901 and CG909: the guard's rules about what is installed, and its settings."""

from __future__ import annotations

import os
import sys

from cudaguard.api import active_rules
from cudaguard.config import CONFIG_VARIABLE, MODE_VARIABLE, read_environment, read_file
from cudaguard.core import decide
from cudaguard.core.checks import Check
from cudaguard.core.lifecycle import activation
from cudaguard.core.modes import install_call, repairs_by, starts_by
from cudaguard.core.plugins import scan
from cudaguard.core.rule_check import rules_from_tables
from cudaguard.errors import ConfigError, RuleError
from cudaguard.system import lending
from cudaguard.system.site import Skipped
from cudaguard.system.torch_build import folder_of
from cudaguard.system.versions import required_name
from cudaguard.tools.doctor.checks import messages as wording
from cudaguard.tools.known import RULES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.config import Settings
    from cudaguard.model import Finding, Rule
    from cudaguard.system.site import Result, Site

START_FILE = "cudaguard.pth"
_PLAIN = ("_frozen_importlib", "_frozen_importlib_external", "importlib", "cudaguard")


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


def check_settings(site: Site) -> Result:
    """Read the settings, and look for what makes them count."""
    settings, problems = read_environment(site.environ)
    findings = [wording.bad_setting(problem) for problem in problems]
    findings += _of_file(settings)
    start = start_file()
    if not is_there(site):
        findings.append(wording.not_installed(sys.prefix, is_wanted=starts_by(settings)))
    elif starts_by(settings):
        if not start:
            findings.append(wording.nobody_reads(site.environ[MODE_VARIABLE]))
        elif sys.flags.ignore_environment or sys.flags.no_site:
            findings.append(wording.python_ignores(site.environ[MODE_VARIABLE]))
    for entries in scan(sys.path).values():
        for entry in entries:
            module = entry.value.partition(":")[0].partition(".")[0]
            if not folder_of(module) and settings.plugins is not False:
                findings.append(wording.plugin_without_module(entry.value, entry.origin))
    ahead = _finders_ahead()
    if ahead and activation.is_up:
        findings.append(wording.finders_ahead(ahead))
    mode = settings.mode or "not switched on by the environment"
    return findings, f"{mode}; start-up file {start or 'not installed'}"


def start_file() -> str:
    """Return the file that switches the guard on at start-up, empty if there is none."""
    import site as interpreter

    folders = [*interpreter.getsitepackages()]
    if interpreter.ENABLE_USER_SITE:
        folders.append(interpreter.getusersitepackages())
    paths = (os.path.join(folder, START_FILE) for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), "")


def _of_file(settings: Settings) -> list[Finding]:
    if not settings.config:
        if os.path.exists("cudaguard.toml"):
            return [wording.file_not_named(os.path.abspath("cudaguard.toml"), CONFIG_VARIABLE)]
        return []
    try:
        found = read_file(settings.config)
        rules_from_tables(found.tables, found.source, known=[rule.id for rule in RULES])
    except (ConfigError, RuleError) as error:
        return [wording.bad_setting(str(error), command=settings.config)]
    return []


def _finders_ahead() -> list[str]:
    """Return the finders that stand before ours in this process and are neither Python's own."""
    names: list[str] = []
    for finder in sys.meta_path:
        kind = finder if isinstance(finder, type) else type(finder)
        module = str(kind.__module__)
        if module.partition(".")[0] == "cudaguard":
            return names
        if module.partition(".")[0] not in _PLAIN:
            names.append(f"{module}.{kind.__qualname__}")
    return []


KNOWN_FAULTS = Check(
    "CG901",
    "known faults of installed packages",
    "Lists the known faults of installed packages and how cudaguard handles each.",
    check_rules,
)
SETTINGS = Check(
    "CG909",
    "settings of cudaguard",
    "The CUDAGUARD variables and the configuration file they name, the start-up file that reads "
    "them, rule plug-ins that are there, and import hooks in front of the guard's.",
    check_settings,
)
