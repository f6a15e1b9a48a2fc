"""All checks of doctor, in the order of the report: those of features, and its own."""

from __future__ import annotations

import os
import shlex
import sys

from cudaguard import api  # noqa: F401  # hands the features to the core
from cudaguard.api import active_rules
from cudaguard.config import CONFIG_VARIABLE, MODE_VARIABLE, read_environment, read_file
from cudaguard.core import decide
from cudaguard.core.checks import Check
from cudaguard.core.findings import listed
from cudaguard.core.lifecycle import activation
from cudaguard.core.modes import INSTALL, install_call, repairs_by, starts_by
from cudaguard.core.plugins import scan
from cudaguard.core.rule_check import rules_from_tables
from cudaguard.core.table import table
from cudaguard.errors import ConfigError, RuleError
from cudaguard.features.gpu_architectures.checks import Situation, findings_of
from cudaguard.features.gpu_architectures.policy import torch_of
from cudaguard.model import Finding
from cudaguard.system import lending
from cudaguard.system.child import Ending, end_children, try_imports
from cudaguard.system.facts import required_name
from cudaguard.system.packages import Skipped
from cudaguard.system.torch_build import architectures, copy_for, folder_of, look_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.config import Settings
    from cudaguard.model import Rule, Severity
    from cudaguard.system.child import Ending
    from cudaguard.system.packages import Result, Site


# --- The wording of doctor's own checks: about the guard, its rules, and imports in children ------

_RULES, _GUARD = "CG901", "CG909"
_ALONE, _GPUS = "CG912", "CG913"
# Verbs of actions about what is done once a module is imported.
_AT_IMPORT = {"before", "late", "needing", "opening"}
_LATER = {v for v, does in table.index.VERBS.items() if _AT_IMPORT.isdisjoint(does)}


# --- rules ---------------------------------------------------------------------------------


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
        _RULES,
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
        _RULES,
        f"cudaguard watches {listed(names)} when it is switched on.",
        severity="info",
        evidence=tuple(f"{rule.id}: {rule.title or rule.why}" for rule in rules),
        command="cudaguard rules list",
    )


# --- the guard -----------------------------------------------------------------------------


def bad_setting(problem: str, *, command: str = "") -> Finding:
    """A setting that cannot be used.

    Args:
        problem: What is wrong, in words.
        command: The configuration file that contains it, if there is one.
    """
    return Finding(
        _GUARD,
        problem,
        consequence="cudaguard ignores this setting, or the whole file.",
        remedy="correct it, or remove it",
        command=f"cudaguard rules check {shlex.quote(command)}"
        if command
        else "env | grep ^CUDAGUARD",
    )


def not_installed(folder: str, *, is_wanted: bool) -> Finding:
    """The environment of ``--python`` has no cudaguard.

    Args:
        folder: The environment.
        is_wanted: True if CUDAGUARD is set.
    """
    return Finding(
        _GUARD,
        f"cudaguard is not installed in {folder}.",
        severity="warning" if is_wanted else "info",
        consequence="CUDAGUARD=fix has no effect there, and `import cudaguard` fails.",
        remedy="install cudaguard there",
        command="pip install cudaguard",
    )


def nobody_reads(value: str) -> Finding:
    """The variable is set, and the start-up file is not there."""
    return Finding(
        _GUARD,
        f"CUDAGUARD={value} is set, but this Python has no cudaguard.pth to read it.",
        consequence="programs start without the guard.",
        remedy="install cudaguard in this environment, or start programs with `cudaguard run`",
        command="pip install --force-reinstall --no-deps cudaguard",
    )


def python_ignores(value: str) -> Finding:
    """The variable is set, and this interpreter was told to ignore it."""
    return Finding(
        _GUARD,
        f"CUDAGUARD={value} is set, but this Python was started with -E, -I or -S.",
        severity="info",
        consequence="with these options Python reads no variables or no start-up files.",
        remedy="start programs without these options, or call cudaguard.install()",
        command="cudaguard run PROGRAM",
    )


def file_not_named(path: str, variable: str) -> Finding:
    """A configuration file is here, and is not read."""
    return Finding(
        _GUARD,
        f"{path} is not read, because no setting names it.",
        severity="info",
        remedy=f"name it with {variable} or install(config=...)",
        command=f"export {variable}={shlex.quote(path)}",
    )


def plugin_without_module(value: str, origin: str) -> Finding:
    """A rule plug-in whose module is not there."""
    return Finding(
        _GUARD,
        f"The rule plug-in {value} of {origin.partition('.dist-info')[0]} does not exist.",
        evidence=(f"sys.path has no module {value.partition(':')[0].partition('.')[0]}",),
        consequence="its rules do not act.",
        remedy="reinstall that distribution, uninstall it, or set CUDAGUARD_PLUGINS=0",
        command=f"pip install --force-reinstall {origin.partition('-')[0]}",
    )


def finders_ahead(names: Sequence[str]) -> Finding:
    """Import finders of others that stand before the guard."""
    is_one = len(names) == 1
    those = "it finds" if is_one else "they find"
    return Finding(
        _GUARD,
        f"{', '.join(names)} {'is' if is_one else 'are'} before cudaguard on sys.meta_path.",
        severity="info",
        consequence=f"cudaguard does not see the modules that {those}.",
        remedy="call cudaguard.install() after the code that installs "
        f"{'it' if is_one else 'them'}",
        command="python -c 'import sys; print(sys.meta_path)'",
    )


# --- imports, and what NVML tells ----------------------------------------------------------


def words(ending: Ending, limit: float) -> str:
    """Return how a child ended, in a few words."""
    told = {
        "": "works",
        "signal": f"is ended by {ending.text}",
        "hang": f"does not end within {limit:g} s",
        "error": f"fails with {ending.text}",
        "exit": f"ends with status {ending.text}",
    }[ending.kind]
    if not ending.kind:
        return told
    return f"{told} {f'in the import of {ending.at}' if ending.at else 'when the process ends'}"


def _ends(ending: Ending) -> str:
    return "hang, or take longer" if ending.kind == "hang" else "fail"


def does_not_import(name: str, ending: Ending, limit: float) -> Finding:
    """A package that cannot be imported."""
    return Finding(
        _ALONE,
        f"`import {name}`, alone and without the guard, {words(ending, limit)}.",
        severity="error",
        evidence=ending.said,
        consequence=f"programs that import it first {_ends(ending)}.",
        remedy="run it with faulthandler, and let cudaguard explain the error",
        command=f"python -X faulthandler -c 'import {name}' 2>&1 | cudaguard explain -",
    )


def initializes(name: str, contexts: int) -> Finding:
    """A package whose import initializes CUDA."""
    more = f", and creates a context on {contexts} GPU{'s' * (contexts > 1)}" if contexts else ""
    return Finding(
        _ALONE,
        f"`import {name}` initializes CUDA{more}.",
        consequence="processes forked afterwards cannot use CUDA. Later changes of "
        "CUDA_VISIBLE_DEVICES have no effect.",
        remedy=f"import {name} late, in the process that uses it; start workers with 'spawn'",
        command=f"cudaguard run -c 'import {name}'",
    )


def machine_problem(problem: str) -> Finding:
    """Something that NVML tells, in the words of `cudaguard.system.machine`."""
    return Finding(
        _GPUS,
        f"{problem[0].upper()}{problem[1:]}.",
        consequence="torch may use no GPU, or not all of them.",
        remedy="check it against the output of nvidia-smi",
        command="nvidia-smi",
    )


# --- CG901 and CG909: the guard's rules about what is installed, and its settings -----------------

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
            findings.append(known_fault(rule, versions, is_on=is_on, is_guarded=is_guarded))
        elif is_on:
            general.append(rule)
    if general:
        findings.append(watched(general))
    return findings, f"rules about what is installed: {len(here)}"


def applying(site: Site) -> list[Rule]:
    """Return the rules, in force or not, whose conditions hold and whose module is there."""
    rules = {rule.id: rule for rule in (*table.rules(), *active_rules())}
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
    findings = [bad_setting(problem) for problem in problems]
    findings += _of_file(settings)
    start = start_file()
    if not is_there(site):
        findings.append(not_installed(sys.prefix, is_wanted=starts_by(settings)))
    elif starts_by(settings):
        if not start:
            findings.append(nobody_reads(site.environ[MODE_VARIABLE]))
        elif sys.flags.ignore_environment or sys.flags.no_site:
            findings.append(python_ignores(site.environ[MODE_VARIABLE]))
    for entries in scan(sys.path).values():
        for entry in entries:
            module = entry.value.partition(":")[0].partition(".")[0]
            if not folder_of(module) and settings.plugins is not False:
                findings.append(plugin_without_module(entry.value, entry.origin))
    ahead = _finders_ahead()
    if ahead and activation.is_up:
        findings.append(finders_ahead(ahead))
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
            return [file_not_named(os.path.abspath("cudaguard.toml"), CONFIG_VARIABLE)]
        return []
    try:
        found = read_file(settings.config)
        rules_from_tables(found.tables, found.source, known=[rule.id for rule in table.rules()])
    except (ConfigError, RuleError) as error:
        return [bad_setting(str(error), command=settings.config)]
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

# --- CG912 and CG913: imports and NVML, each tried in a child -------------------------------------

_MOST_AT_ONCE = 4  # a torch that is being imported takes a core and half a gigabyte
# Asked without touching: it only looks whether somebody has called cuInit.
_ASK_DRIVER = """
import json
from cudaguard.system.driver import Driver
_state = Driver().state()
_note("answer " + json.dumps({"cuda": _state.is_initialized, "contexts": len(_state.active)}))
"""
_ASK_NVML = """
import json
from cudaguard.system.machine import look_at_machine
_note("answer " + json.dumps(look_at_machine()))
"""


def check_alone(site: Site) -> Result:
    """Import torch, and each installed package that a rule watches, alone."""
    watched = [name.partition(".")[0] for rule in applying(site) for name in rule.watch]
    names = [name for name in dict.fromkeys(("torch", *watched)) if folder_of(name)]
    if not names:
        raise Skipped("no package that a rule watches is installed")
    endings = _tried(site, names, _ASK_DRIVER)
    findings = []
    for name, ending in endings.items():
        if ending.kind:
            findings.append(does_not_import(name, ending, site.limit))
        elif ending.answer and ending.answer["cuda"]:
            findings.append(initializes(name, ending.answer["contexts"]))
    seconds = ", ".join(f"{name} {e.seconds:.1f} s" for name, e in endings.items())
    return findings, seconds


def _tried(site: Site, names: Sequence[str], code: str) -> dict[str, Ending]:
    """Try imports, several at once; ours is interrupted together with its children."""

    def attempt(name: str) -> Ending:
        return try_imports((name,), site.environ, site.limit, code=code)

    from concurrent.futures import ThreadPoolExecutor

    at_once = max(1, min(_MOST_AT_ONCE, len(os.sched_getaffinity(0))))
    pool = ThreadPoolExecutor(at_once)
    try:
        return dict(zip(names, pool.map(attempt, names)))
    except BaseException:  # interrupted: the threads wait for children that know nothing of it
        pool.shutdown(wait=False, cancel_futures=True)
        end_children()
        raise
    finally:
        pool.shutdown()


def _asked(site: Site, code: str) -> Any:
    """Return what a child answers.

    Raises:
        RuntimeError: It does not: then this check knows nothing.
    """
    ending = try_imports((), site.environ, site.limit, code=code)
    if ending.answer is None:
        said = " | ".join(ending.said)
        raise RuntimeError(f"the child {words(ending, site.limit)}: {said}".rstrip(": "))
    return ending.answer


def check_gpus(site: Site) -> Result:
    """Ask NVML, and compare what it lists with what torch was built for."""
    machine = _asked(site, _ASK_NVML)
    if machine["nvml"] == "missing" and not machine["driver_library"]:
        raise Skipped("there is no NVIDIA driver")
    findings = [machine_problem(problem) for problem in machine["problems"]]
    capabilities = tuple(
        (gpu["capability"][0], gpu["capability"][1]) for gpu in machine["gpus"] if gpu["capability"]
    )
    findings += _of_architectures(capabilities)
    names = ", ".join(gpu["name"] for gpu in machine["gpus"]) or "no GPU"
    return findings, f"driver {machine['driver_version'] or 'unknown'}, {names}"


def _of_architectures(capabilities: tuple[tuple[int, int], ...]) -> list[Finding]:
    torch = look_around()
    if not torch.cuda or not capabilities:
        return []
    folder = folder_of("torch")
    built = torch_of(torch.torch, architectures(folder))
    found = findings_of(Situation(capabilities, built, copy_for(folder)), 0)
    return [finding.replace(id=_GPUS) for finding in found]


IMPORTS = Check(
    "CG912",
    "imports of watched packages",
    "torch, and every installed package that a rule watches, imported alone in a child with a "
    "time limit: whether it crashes, hangs, or initializes CUDA.",
    check_alone,
    "--deep",
)

GPUS = Check(
    "CG913",
    "GPUs of this machine",
    "NVML is asked in a child: driver, devices, and whether torch has code for them.",
    check_gpus,
    "--deep",
)

# Those of environment and guard.
_OWN = {check.id: check for check in (KNOWN_FAULTS, SETTINGS, IMPORTS, GPUS)}
CHECKS = tuple(sorted({*_OWN, *table.index.CHECKS}))  # ids


def check_of(id: str) -> Check:
    """Return a check by its id."""
    if id in _OWN:
        return _OWN[id]
    check: Check = table.resolve(table.index.CHECKS[id])
    return check


def all_checks() -> dict[str, Check]:
    """Return all checks by their ids, in the order of the report."""
    return {id: check_of(id) for id in CHECKS}
