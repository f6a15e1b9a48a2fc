"""The wording of doctor's own checks: about the guard, its rules, and imports in children."""

from __future__ import annotations

import shlex

from cudaguard.core.messages import listed
from cudaguard.core.modes import INSTALL, install_call
from cudaguard.core.table import table
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.model import Rule, Severity
    from cudaguard.system.trial import Ending

RULES, GUARD = "CG901", "CG909"
ORDERS, ALONE, GPUS = "CG911", "CG912", "CG913"
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


# --- the guard -----------------------------------------------------------------------------


def bad_setting(problem: str, *, command: str = "") -> Finding:
    """A setting that cannot be used.

    Args:
        problem: What is wrong, in words.
        command: The configuration file that contains it, if there is one.
    """
    return Finding(
        GUARD,
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
        GUARD,
        f"cudaguard is not installed in {folder}.",
        severity="warning" if is_wanted else "info",
        consequence="CUDAGUARD=fix has no effect there, and `import cudaguard` fails.",
        remedy="install cudaguard there",
        command="pip install cudaguard",
    )


def nobody_reads(value: str) -> Finding:
    """The variable is set, and the start-up file is not there."""
    return Finding(
        GUARD,
        f"CUDAGUARD={value} is set, but this Python has no cudaguard.pth to read it.",
        consequence="programs start without the guard.",
        remedy="install cudaguard in this environment, or start programs with `cudaguard run`",
        command="pip install --force-reinstall --no-deps cudaguard",
    )


def python_ignores(value: str) -> Finding:
    """The variable is set, and this interpreter was told to ignore it."""
    return Finding(
        GUARD,
        f"CUDAGUARD={value} is set, but this Python was started with -E, -I or -S.",
        severity="info",
        consequence="with these options Python reads no variables or no start-up files.",
        remedy="start programs without these options, or call cudaguard.install()",
        command="cudaguard run PROGRAM",
    )


def file_not_named(path: str, variable: str) -> Finding:
    """A configuration file is here, and is not read."""
    return Finding(
        GUARD,
        f"{path} is not read, because no setting names it.",
        severity="info",
        remedy=f"name it with {variable} or install(config=...)",
        command=f"export {variable}={shlex.quote(path)}",
    )


def plugin_without_module(value: str, origin: str) -> Finding:
    """A rule plug-in whose module is not there."""
    return Finding(
        GUARD,
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
        GUARD,
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


def not_found(name: str, local: str) -> Finding:
    """A module that is not there.

    Args:
        name: The module.
        local: A file of that name in the working directory; empty if there is none.
    """
    if local:
        return Finding(
            ORDERS,
            f"The module {name} is not installed. {local} in the working directory is not tried.",
            severity="error",
            consequence="doctor does not try its import orders.",
            remedy="put its folder on PYTHONPATH",
            command=f"PYTHONPATH=. cudaguard doctor --orders {name}",
        )
    return Finding(
        ORDERS,
        f"The module {name} is not installed.",
        severity="error",
        consequence="doctor does not try its import orders.",
        remedy="name the module that is imported, not the distribution (cv2, not opencv-python)",
        command=f"python -c 'import {name}'",
    )


def order_fails(
    order: Sequence[str], ending: Ending, guarded: Ending, working: Sequence[str], limit: float
) -> Finding:
    """An order of imports that fails.

    Args:
        order: The modules.
        ending: How it ends without the guard.
        guarded: How it ends under the guard.
        working: Another order of the same modules that works, if one does.
        limit: Seconds that it was given.
    """
    told = f"import {', '.join(order)}"
    these = "them in this order" if len(order) > 1 else "it first"
    is_cured = not guarded.kind
    remedy = f"import {', '.join(working)}, in this order" if working else ""
    if is_cured:
        remedy = "let cudaguard repair it with cudaguard.install()" + (
            f"; or {remedy}" if remedy else ""
        )
    elif len(order) == 1:
        remedy = "find out why it fails even alone, or reinstall it"
    command = "export CUDAGUARD=fix"
    if not is_cured:
        command = f"cudaguard bisect --imports {','.join(order)}"
    return Finding(
        ORDERS,
        f"`{told}` {words(ending, limit)}.",
        severity="warning" if is_cured else "error",
        evidence=(*ending.said, f"under the guard it {words(guarded, limit)}"),
        consequence=f"programs that import {these} {_ends(ending)}.",
        remedy=remedy or "find with bisect what they need, as no order that was tried works",
        command=command,
    )


def orders_tried(tried: int, failures: int) -> str:
    """What was tried; a success is one of the imports alone."""
    if failures:
        return f"tried: {tried}, of which fail: {failures}; use was not tested"
    return f"imports succeed; use was not tested; tried: {tried}"


def use_not_tested(name: str, rule: Rule) -> Finding:
    """A rule about a module whose import works."""
    return Finding(
        ORDERS,
        f"The import of {name} succeeds, but may not show the fault of rule {rule.id}: "
        f"{rule.title or rule.why}.",
        rule=rule.id,
        severity="info",
        consequence="an order that imports without an error may still crash or compute wrong "
        "results later.",
        remedy="read the rule, and the result of check CG901",
        command=f"cudaguard rules show {rule.id}",
    )


def does_not_import(name: str, ending: Ending, limit: float) -> Finding:
    """A package that cannot be imported."""
    return Finding(
        ALONE,
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
        ALONE,
        f"`import {name}` initializes CUDA{more}.",
        consequence="processes forked afterwards cannot use CUDA. Later changes of "
        "CUDA_VISIBLE_DEVICES have no effect.",
        remedy=f"import {name} late, in the process that uses it; start workers with 'spawn'",
        command=f"cudaguard run -c 'import {name}'",
    )


def machine_problem(problem: str) -> Finding:
    """Something that NVML tells, in the words of `cudaguard.system.machine`."""
    return Finding(
        GPUS,
        f"{problem[0].upper()}{problem[1:]}.",
        consequence="torch may use no GPU, or not all of them.",
        remedy="check it against the output of nvidia-smi",
        command="nvidia-smi",
    )
