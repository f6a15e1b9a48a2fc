"""All checks of doctor, in the order of the report: those of features, and its own."""

from __future__ import annotations

import os
import shlex

from cudaguard import api  # noqa: F401  # hands the features to the core
from cudaguard.api import active_rules
from cudaguard.config import CONFIG_VARIABLE, RULES_VARIABLE, read_environment
from cudaguard.core import decide
from cudaguard.core.checks import Check, Skipped
from cudaguard.core.findings import FITTING, Kind, named_versions
from cudaguard.core.lifecycle import activation
from cudaguard.core.rule import INSTALL, REPAIRING, install_call, values_of
from cudaguard.core.settings import checked_file, known_switches
from cudaguard.core.table import RESERVED_PREFIX, table
from cudaguard.errors import ConfigError, RuleError
from cudaguard.features.gpu_architectures.checks import ending_words, machine_by_child
from cudaguard.features.gpu_architectures.detector import findings_of
from cudaguard.features.gpu_architectures.policy import Torch
from cudaguard.features.gpu_architectures.repair import copy_for
from cudaguard.model import MODE_VARIABLE, MODES, TYPE_CHECKING
from cudaguard.system.child import end_children, try_imports
from cudaguard.system.facts import fitting_release
from cudaguard.system.processes import cores
from cudaguard.system.torch_build import architectures, folder_of, look_around

if TYPE_CHECKING:
    from cudaguard.config import Settings
    from cudaguard.core.checks import Result
    from cudaguard.core.findings import Finding
    from cudaguard.core.rule import Rule
    from cudaguard.system.child import Ending
    from cudaguard.system.packages import Site

# --- what is found, and the words for it ----------------------------------------------------------

FAULT = Kind("CG901", "known faults of installed packages")
SETTING = Kind("CG909", "settings of cudaguard")
IMPORT = Kind("CG912", "imports of watched packages")
GPU = Kind(
    "CG913",
    "GPUs of this machine",
    consequence="torch may see no GPU, or only some of them.",
    remedy="check this against the output of nvidia-smi",
    command="nvidia-smi",
)
# Verbs of actions about what is done once a module is imported.
_AT_IMPORT = {"before", "late", "needing", "opening"}
_LATER = {v for v, does in table.index.VERBS.items() if _AT_IMPORT.isdisjoint(does)}


def local_fault(rule: Rule, site: Site, *, is_on: bool, is_guarded: bool) -> Finding:
    """Versions with a fault that a rule knows, as in ``decord 0.6.0``; the rule applies here.

    It is on where the guard is; everything is guarded if each Python here starts with the guard.
    """
    versions = named_versions(rule, site.version)
    about, severity, command = ", ".join(versions) or rule.watch[0], "info", ""
    title, first = rule.title or rule.why, (*versions, about)[0]
    what = f"{first}{title.removeprefix(first.partition(' ')[0])}"
    what = what if what.startswith(f"{first} ") else f"{about}: {title}"
    # A rule about arrays or builds breaks no import.
    is_at_import = any(_LATER.isdisjoint(action) for action in rule.actions) or bool(rule.needs)
    if not install_call(rule):
        severity, remedy = "warning", "follow the advice of the rule: cudaguard cannot repair this"
        command = f"cudaguard explain {rule.id}"
        if wanted := fitting_release(rule.when.get("unless", ()), rule.watch[0], site.version):
            remedy, command = FITTING, wanted
    elif not is_on:
        what = f"Rule {rule.id} for {about} is off: {rule.title or rule.why}."
        remedy = "switch the rule on if you see this fault"
        if install_call(rule) != INSTALL:
            remedy += "; it is off because it has a cost"
        command = f"export CUDAGUARD_RULES=+{rule.id}"
    elif is_guarded:
        remedy = "do nothing: cudaguard is enabled here and repairs it"
    else:
        severity = "warning" if is_at_import else "info"
        remedy = "let cudaguard repair it: set CUDAGUARD=fix, or call cudaguard.install() first"
        command = "export CUDAGUARD=fix"
    return FAULT.found(
        f"{what.rstrip('.')}.",
        f"installed: {about}" if versions[1:] and about not in what else "",
        f"reproduced {rule.verified}" if rule.verified else "reported, not reproduced",
        rule=rule.id,
        severity=severity,
        consequence=rule.why if rule.title else "",
        remedy=remedy,
        command=command,
        links=rule.links[:1],
    )


def unusable_setting(problem: str, file: str = "") -> Finding:
    """A setting that cannot be used, in the environment or in a configuration file."""
    check = f"cudaguard rules check {shlex.quote(file)}"
    return SETTING.found(
        problem,
        consequence="cudaguard ignores this setting, or the whole file.",
        remedy="correct it, or remove it",
        command=check if file else "env | grep ^CUDAGUARD",
    )


# --- CG901 and CG909: the guard's rules about what is installed, and its settings -----------------

START_FILE = "cudaguard.pth"
_HIDDEN = "preload_hidden"


def check_rules(site: Site) -> Result:
    """Tell what the guard would do here, and what it would do if asked."""
    active = {rule.id for rule in active_rules()}
    if not (here := applying_here(site)):
        raise Skipped("no package that a rule watches is installed")
    settings, _ = read_environment(site.environ)
    is_guarded = settings.mode in REPAIRING
    findings = []
    for rule in sorted(here, key=lambda rule: rule.id):
        is_on = rule.id in active
        versions = named_versions(rule, site.version)
        # What is only looked at when the program calls it is no fault of what is installed.
        if versions or values_of(rule, _HIDDEN) or not (install_call(rule) or rule.actions):
            findings.append(local_fault(rule, site, is_on=is_on, is_guarded=is_guarded))
    return findings, f"rules about what is installed: {len(here)}"


def all_rules() -> dict[str, Rule]:
    """Return the rules, in force or not, by their ids; one of the user's wins."""
    return {rule.id: rule for rule in (*table.rules(), *active_rules())}


def applying_here(site: Site) -> list[Rule]:
    """Return the rules, in force or not, whose conditions hold and whose module is there."""
    there = (
        rule
        for rule in all_rules().values()
        if any(folder_of(name.partition(".")[0]) for name in rule.watch)
    )
    return [rule for rule in decide.applying(there, site.facts) if _has_work(rule)]


def _has_work(rule: Rule) -> bool:
    """Return False if all that a rule would do is to open files, and there is none to open."""
    from cudaguard.features.import_order.repair import names_file
    from cudaguard.system.newer_copies import hidden_by_older
    from cudaguard.system.preload import installed_files, unmet_needs

    opens = (action["preload"] for action in rule.actions if names_file(action))
    found = [*map(installed_files, opens), *map(hidden_by_older, values_of(rule, _HIDDEN))]
    found += (unmet_needs(a["preload"]) for a in rule.actions if a.get("dependencies"))
    return sum(not files for files in found) < max(1, len(rule.actions))


def check_settings(site: Site) -> Result:
    """Read the settings, and look for what makes them count."""
    settings, problems = read_environment(site.environ)
    for id, state in settings.switches.items():
        try:
            known_switches({id: state}, RULES_VARIABLE)
        except ConfigError as error:
            problems.append(str(error))
    foreign = [id for id in settings.switches if not id.upper().startswith(RESERVED_PREFIX)]
    rules = activation.every_rule() if foreign else {}
    said = "is not known: no configuration file and no plug-in here has it"
    problems += (f"{RULES_VARIABLE}: rule {id!r} {said}" for id in foreign if id not in rules)
    findings = [unusable_setting(problem) for problem in problems]
    findings += _problems_of_file(settings)
    start, mode = start_file(), settings.mode
    if mode in MODES[1:] and not start:  # it is not off
        value = site.environ[MODE_VARIABLE]
        findings.append(
            SETTING.found(
                f"CUDAGUARD={value} is set, but this Python has no cudaguard.pth to read it.",
                consequence="Programs start without the guard.",
                remedy="install cudaguard in this environment, or start programs with "
                "`cudaguard run`",
                command="cudaguard run --help",
            )
        )
    said = mode or "not switched on by the environment"
    return findings, f"{said}; start-up file {start or 'not installed'}"


def start_file() -> str:
    """Return the file that switches the guard on at start-up, empty if there is none."""
    import site as interpreter

    folders = [*interpreter.getsitepackages()]
    if interpreter.ENABLE_USER_SITE:
        folders.append(interpreter.getusersitepackages())
    paths = (os.path.join(folder, START_FILE) for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), "")


def _problems_of_file(settings: Settings) -> list[Finding]:
    if not settings.config:
        path = f"{os.getcwd()}/cudaguard.toml" if os.path.exists("cudaguard.toml") else ""
        not_named = SETTING.found(
            f"{path} is not read, because no setting names it.",
            severity="info",
            remedy=f"name it with {CONFIG_VARIABLE} or install(config=...)",
            command=f"export {CONFIG_VARIABLE}={shlex.quote(path)}",
        )
        return [not_named] if path else []
    try:
        checked_file(settings.config)
    except (ConfigError, RuleError) as error:
        return [unusable_setting(str(error), settings.config)]
    return []


# --- CG912 and CG913: imports and NVML, each tried in a child -------------------------------------

_MOST_AT_ONCE = 4  # a torch that is being imported takes a core and half a gigabyte
# Asked without touching: it only looks whether somebody has called cuInit.
_ASK_DRIVER = """
import json
from cudaguard.system.driver import Driver
_state = Driver().state()
_note("answer " + json.dumps({"cuda": _state.is_initialized, "contexts": len(_state.active)}))
"""


def check_alone(site: Site) -> Result:
    """Import torch, and each installed package that a rule watches, alone."""
    from concurrent.futures import ThreadPoolExecutor

    watched = [name.partition(".")[0] for rule in applying_here(site) for name in rule.watch]
    names = [name for name in dict.fromkeys(("torch", *watched)) if folder_of(name)]
    if not names:
        raise Skipped("no package that a rule watches is installed")

    def attempt(name: str) -> Ending:
        return try_imports((name,), site.environ, site.limit, code=_ASK_DRIVER)

    pool = ThreadPoolExecutor(max(1, min(_MOST_AT_ONCE, cores())))
    try:
        endings = dict(zip(names, pool.map(attempt, names)))
    except BaseException:  # interrupted: the threads wait for children that know nothing of it
        pool.shutdown(wait=False, cancel_futures=True)
        end_children()
        raise
    finally:
        pool.shutdown()
    findings = []
    for name, ending in endings.items():
        if ending.kind:
            how = ending_words(ending, site.limit).removesuffix(f" while importing {name}")
            end = "hang, or take longer" if ending.kind == "hang" else "fail"
            finding = IMPORT.found(
                f"`import {name}` {how}, even alone and without cudaguard.",
                *ending.said,
                severity="error",
                consequence=f"Programs that import it first {end}.",
                remedy="run it with faulthandler, and let cudaguard explain the error",
                command=f"python -X faulthandler -c 'import {name}' 2>&1 | cudaguard explain -",
            )
            findings.append(finding)
        elif ending.answer and ending.answer["cuda"]:
            count = ending.answer["contexts"]
            more = f", and creates a context on {count} GPU{'s' * (count > 1)}" if count else ""
            finding = IMPORT.found(
                f"`import {name}` initializes CUDA{more}.",
                consequence="Processes forked afterwards cannot use CUDA. Later changes of "
                "CUDA_VISIBLE_DEVICES have no effect.",
                remedy=f"import {name} late, in the process that uses it; start workers with "
                "'spawn'",
                command=f"cudaguard run -c 'import {name}'",
            )
            findings.append(finding)
    return findings, ", ".join(f"{name} {e.seconds:.1f} s" for name, e in endings.items())


def check_gpus(site: Site) -> Result:
    """Ask NVML, and compare what it lists with what torch was built for."""
    machine = machine_by_child(site)
    if machine["nvml"] == "missing" and not machine["driver_library"]:
        raise Skipped("there is no NVIDIA driver")
    problems = machine["problems"]  # as `cudaguard.system.machine` words them
    findings = [GPU.found(f"{problem[0].upper()}{problem[1:]}.") for problem in problems]
    capabilities = tuple((*gpu["capability"],) for gpu in machine["gpus"] if gpu["capability"])
    torch, folder = look_around(), folder_of("torch")
    if torch.cuda and capabilities:
        built = Torch(torch.torch, architectures(folder))
        found = findings_of(built, copy_for(folder), capabilities)
        findings += [finding.replace(id=GPU.id) for finding in found]
    names = ", ".join(gpu["name"] for gpu in machine["gpus"]) or "no GPU"
    return findings, f"driver {machine['driver_version'] or 'unknown'}, {names}"


_ALL = (
    Check(
        FAULT,
        "Lists the known faults of installed packages and how cudaguard handles each.",
        check_rules,
    ),
    Check(
        SETTING,
        "The CUDAGUARD variables and the configuration file they name, and the start-up file that "
        "reads them.",
        check_settings,
    ),
    Check(
        IMPORT,
        "torch, and every installed package that a rule watches, imported alone in a child with a "
        "time limit: whether it crashes, hangs, or initializes CUDA.",
        check_alone,
        "--deep",
    ),
    Check(
        GPU,
        "NVML is asked in a child: driver, devices, and whether torch has code for them.",
        check_gpus,
        "--deep",
    ),
)
_OWN = {check.id: check for check in _ALL}
CHECKS = tuple(sorted({*_OWN, *table.index.CHECKS}))  # ids


def check_of(id: str) -> Check:
    """Return a check by its id."""
    return _OWN[id] if id in _OWN else table.resolve(table.index.CHECKS[id])


def all_checks() -> dict[str, Check]:
    """Return all checks by their ids, in the order of the report."""
    return {id: check_of(id) for id in CHECKS}
