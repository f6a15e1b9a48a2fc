"""The wording of how the guard is set up, and of rules that have aged."""

from __future__ import annotations

import shlex

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.model import Rule

GUARD, AGE = "CG909", "CG910"


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


def long_ago(rules: Sequence[tuple[Rule, str]], months: int) -> Finding:
    """Rules whose fault was last seen long ago.

    Args:
        rules: Each with the day when it was last seen.
        months: What counts as long.
    """
    return Finding(
        AGE,
        f"{_rules_in_use(rules)} {'were' if len(rules) > 1 else 'was'} last verified more than "
        f"{months} months ago.",
        severity="info",
        evidence=tuple(f"{rule.id}, seen {day}: {rule.title or rule.why}" for rule, day in rules),
        consequence="a later release may have fixed the fault. The rule is not needed then.",
        remedy="update cudaguard",
        command="pip install --upgrade cudaguard",
    )


def mended(rule: Rule, installed: str) -> Finding:
    """A rule for a fault that the installed release has no longer."""
    return Finding(
        AGE,
        f"{rule.id} is not needed with {installed}: {rule.fixed_in} fixed the fault.",
        rule=rule.id,
        consequence="the rule still acts, without need.",
        remedy="switch it off, or limit it to the versions that need it (dist)",
        command=f"export CUDAGUARD_RULES=-{rule.id}",
    )


def not_reproduced(rules: Sequence[Rule]) -> Finding:
    """Rules in force that rest on reports alone."""
    return Finding(
        AGE,
        f"{_rules_in_use(rules)} {'are' if len(rules) > 1 else 'is'} based on reports only: "
        f"{', '.join(rule.id for rule in rules)}.",
        severity="info",
        evidence=tuple(f"{rule.id}: {rule.title or rule.why}" for rule in rules),
        remedy="report it if one of them does not help",
        command=f"cudaguard rules show {rules[0].id}",
    )


def _rules_in_use(rules: Sequence[object]) -> str:
    return f"{len(rules)} rule{'s' if len(rules) > 1 else ''} in use here"
