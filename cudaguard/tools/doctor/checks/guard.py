"""CG909: settings of the guard, and whether it follows them."""

from __future__ import annotations

import os
import sys

from cudaguard.config import CONFIG_VARIABLE, MODE_VARIABLE, read_environment, read_file
from cudaguard.core.checks import Check
from cudaguard.core.lifecycle import activation
from cudaguard.core.modes import starts_by
from cudaguard.core.plugins import scan
from cudaguard.core.rule_check import rules_from_tables
from cudaguard.errors import ConfigError, RuleError
from cudaguard.system.torch_build import folder_of
from cudaguard.tools.catalog import RULES
from cudaguard.tools.doctor.checks import messages as wording
from cudaguard.tools.doctor.checks.rules import is_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.config import Settings
    from cudaguard.model import Finding
    from cudaguard.system.site import Result, Site

START_FILE = "cudaguard.pth"
_PLAIN = ("_frozen_importlib", "_frozen_importlib_external", "importlib", "cudaguard")


def check(site: Site) -> Result:
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


SETTINGS = Check(
    "CG909",
    "settings of cudaguard",
    "The CUDAGUARD variables and the configuration file they name, the start-up file that reads "
    "them, rule plug-ins that are there, and import hooks in front of the guard's.",
    check,
)
