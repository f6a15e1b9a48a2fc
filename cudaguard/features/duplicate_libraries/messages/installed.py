"""The wording of rules that apply, of extensions, and of what metadata tells."""

from __future__ import annotations

import os
import shlex

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudaguard.elf.extension_check import ExtensionCheck
    from cudaguard.features.duplicate_libraries.policy.installed import Overlap, Unmet
    from cudaguard.model import Rule


RULES, EXTENSIONS, INSTALLED, PINS = "CG901", "CG902", "CG905", "CG906"
_SHOWN = 3


def known_fault(rule: Rule, versions: Sequence[str], *, is_on: bool, is_guarded: bool) -> Finding:
    """Versions with a fault that a rule knows.

    Args:
        rule: It applies here.
        versions: What of its versions is installed, as in ``decord 0.6.0``.
        is_on: Is it in force where the guard is?
        is_guarded: Is the guard switched on for every Python that starts in this environment?
    """
    remedy, command, severity = "", "", "warn" if is_at_import(rule) else "info"
    about = ", ".join(versions) or rule.watch[0]
    what = f"{about}: {rule.title or rule.why}"
    if rule.grade == "warn":
        severity = "warn"
        remedy = "nothing repairs it: follow what the rule says"
        command = f"cudaguard rules show {rule.id}"
    elif not is_on:
        severity = "info"
        what = f"Rule {rule.id} is off, and is about {about}: {rule.title or rule.why}"
        remedy = "if that is seen here, switch the rule on; it is off because it may cost something"
        command = f"export CUDAGUARD_RULES=+{rule.id}"
    elif is_guarded:
        severity = "info"
        remedy = "none is needed: the guard is switched on here, and repairs it"
    else:
        remedy = "have the guard repair it: import cudaguard; cudaguard.install() at the very top"
        command = "export CUDAGUARD=fix"
    return Finding(
        RULES,
        what,
        rule=rule.id,
        severity=severity,
        evidence=(f"seen failing {rule.verified}" if rule.verified else "reported, and not "
                  "reproduced for this project",),
        consequence=rule.why if rule.title else "",
        remedy=remedy,
        command=command,
        links=rule.links[:1],
    )  # fmt: skip


def is_at_import(rule: Rule) -> bool:
    """Is a rule about what an import breaks, and not about what is done with arrays or builds?"""
    later = ("correct", "normalize", "graphs", "builds")
    return any(action.partition(":")[0] not in later for action in rule.actions) or bool(rule.needs)


def watched(rules: Sequence[Rule]) -> Finding:
    """Rules that watch over what is installed, in any version."""
    names = dict.fromkeys(rule.watch[0].partition(".")[0] for rule in rules)
    return Finding(
        RULES,
        f"The guard, where it is switched on, watches over {_listed(names)}.",
        severity="info",
        evidence=tuple(f"{rule.id}: {rule.title or rule.why}" for rule in rules),
        command="cudaguard rules list",
    )


def would_not_load(
    checks: Sequence[ExtensionCheck], dist: str, version: str, *, is_certain: bool
) -> Finding:
    """Extensions of a distribution that the loader would refuse, for one cause.

    Args:
        checks: What is wrong with each.
        dist: The distribution.
        version: Its version.
        is_certain: Is it known who would have to load first what they lack?
    """
    first, more = checks[0], len(checks) - 1
    libraries = dict.fromkeys(one for check in checks for one in check.missing_libraries)
    symbols = dict.fromkeys(name for check in checks for _, name in check.missing_symbols)
    others = f" (and {more} more)" if more else ""
    return Finding(
        EXTENSIONS,
        f"{os.path.basename(first.path)}{others} of {dist} {version} would not load: "
        f"{first.message.rstrip('.')}.",
        severity="error" if is_certain else "warn",
        evidence=(
            *(check.path for check in checks[:_SHOWN]),
            *_more(len(checks) - _SHOWN, "files"),
            *(f"not found: {library}" for library in libraries),
            *(f"nobody has: {name}" for name in list(symbols)[:_SHOWN]),
            *_more(len(symbols) - _SHOWN, "symbols"),
        ),
        consequence=f"importing it fails, or {dist} does without it and says nothing",
        remedy=first.remedy.replace("PACKAGE", dist),
        command=f"cudaguard check-extension {shlex.quote(first.path)}",
    )


def torch_would_not_load(check: ExtensionCheck, version: str) -> Finding:
    """A torch that cannot be imported."""
    found = would_not_load((check,), "torch", version, is_certain=True)
    return found.replace(
        what=f"torch {version} would not load: {check.message.rstrip('.')}.",
        consequence="import torch fails",
    )


def need_the_driver(dists: Sequence[str]) -> Finding:
    """Extensions that lack nothing but what comes with the driver."""
    return Finding(
        EXTENSIONS,
        f"{_listed(dists)} need{'s' * (len(dists) == 1)} the NVIDIA driver, and it is not here.",
        severity="info",
        evidence=("not found: libcuda.so.1",),
        consequence="importing it fails on this machine, and works on one with a GPU",
        remedy="in a container: start it with --gpus all",
        command="cudaguard doctor --only CG904",
    )


def overwritten(overlap: Overlap, *, gone: str, restored: Sequence[str], severity: str) -> Finding:
    """Two distributions that were installed over one another.

    Args:
        overlap: Which, and their files.
        gone: The one to uninstall.
        restored: What loses files by that, as ``NAME==VERSION``.
        severity: Of the finding.
    """
    count, pair = len(overlap.files), (overlap.first, overlap.second)
    return Finding(
        INSTALLED,
        f"{pair[0]} and {pair[1]} both contain {overlap.files[0]}"
        f"{f' and {count - 1} more files' if count > 1 else ''}, with different contents.",
        severity=severity,
        evidence=(*overlap.files[:_SHOWN], *_more(count - _SHOWN, "files")),
        consequence=(
            "the one installed last overwrote files of the other; uninstalling either deletes "
            "files of both"
        ),
        remedy=f"uninstall {gone}, then reinstall what loses files by that",
        command=_uninstall((gone,), restored),
    )


def files_missing(pinned: str, files: Sequence[str]) -> Finding:
    """A distribution of which files are gone.

    Args:
        pinned: The distribution, as ``NAME==VERSION``.
        files: What is gone, libraries first.
    """
    has_libraries = ".so" in files[0]
    return Finding(
        INSTALLED,
        f"{pinned.replace('==', ' ')} lacks {files[0]}"
        f"{f' and {len(files) - 1} more files' if len(files) > 1 else ''} that it installed.",
        severity="error" if has_libraries else "warn",
        evidence=(*files[:_SHOWN], *_more(len(files) - _SHOWN, "files")),
        consequence="programs that load these libraries fail" if has_libraries
        else "builds that need these files fail",
        remedy="reinstall it at the same version",
        command=f"pip install {_restoring((pinned,))}",
    )  # fmt: skip


def _uninstall(gone: Iterable[str], restored: Sequence[str]) -> str:
    command = f"pip uninstall -y {' '.join(gone)}"
    return f"{command} && pip install {_restoring(restored)}" if restored else command


def _restoring(pinned: Iterable[str]) -> str:
    return f"--force-reinstall --no-deps {' '.join(map(shlex.quote, pinned))}"


def not_met(unmet: Unmet) -> Finding:
    """A distribution that was made for another torch, by its own word."""
    there = f"{unmet.name} {unmet.found}" if unmet.found else "none"
    return Finding(
        INSTALLED,
        f"{unmet.by} requires {unmet.name}{unmet.wanted}, and {there} is installed.",
        severity="error" if unmet.wanted.startswith("==") else "warn",
        consequence="what it has compiled was made for that version, and may not load or may crash",
        remedy=f"install the release of {unmet.by.partition(' ')[0]} for this {unmet.name}, or "
        f"{unmet.name}{unmet.wanted}",
        command=f"pip install --upgrade {unmet.by.partition(' ')[0]} "
        + shlex.quote(f"{unmet.name}=={unmet.found.partition('+')[0]}" if unmet.found
                      else f"{unmet.name}{unmet.wanted}"),
    )  # fmt: skip


def metadata_unreadable(path: str, why: str) -> Finding:
    """Metadata that cannot be used."""
    return Finding(
        INSTALLED,
        f"The metadata in {path} cannot be used: {why.rstrip('.')}.",
        evidence=(path,),
        consequence="pip can neither update nor remove it, and nothing else here knows of it",
        remedy="install the distribution anew, or remove that folder if it is a remnant",
        command=f"ls -la {shlex.quote(path)}",
    )


def left_over(
    major: str, wheels: Sequence[str], others: Sequence[str], restored: Sequence[str]
) -> Finding:
    """Wheels of a CUDA that nothing here asks for.

    Args:
        major: That CUDA.
        wheels: They.
        others: The other CUDAs of which wheels are installed.
        restored: What loses files when they are uninstalled, as ``NAME==VERSION``.
    """
    return Finding(
        INSTALLED,
        f"Wheels for CUDA {major} are installed beside those for CUDA {' and '.join(others)}, and "
        "nothing that is installed requires them.",
        severity="info",
        evidence=tuple(wheels),
        consequence="they take up room, and what looks for a CUDA library by its folder may take "
        "one of them",
        remedy="if you do not use them, uninstall them"
        + (", then reinstall the wheels that share files with them" if restored else ""),
        command=_uninstall(wheels, restored),
    )


def other_release(torch: str, unmet: Unmet) -> Finding:
    """A wheel of another release than torch pins, or none."""
    wanted = shlex.quote(f"{unmet.name}{unmet.wanted}")
    if unmet.found is None:
        what = f"torch {torch} requires {unmet.name}{unmet.wanted}, and it is not installed."
        consequence = "import torch fails, unless that library is found elsewhere on this machine"
    else:
        what = f"torch {torch} requires {unmet.name}{unmet.wanted}, and {unmet.found} is installed."
        consequence = "torch runs with a library that it was not built and tested with"
    return Finding(
        PINS,
        what,
        severity="warn",
        consequence=consequence,
        remedy="install the release that torch pins",
        command=f"pip install {wanted}",
    )


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _more(count: int, what: str) -> tuple[str, ...]:
    return (f"and {count} more {what}",) if count > 0 else ()
