"""The wording of every finding: what, evidence, consequence, remedy, next command."""

from __future__ import annotations

import sys

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudaguard.model import Rule


FIX = "use mode 'fix' (CUDAGUARD=fix, cudaguard run --mode fix, or cudaguard.install('fix'))"
# Title and class of the warning; a rule's verb decides where there is none.
IDS = {
    "CG801": ("a module that a rule needs first could not be imported", "ImportOrderWarning"),
    "CG802": ("the guard came too late for a module", ""),
    "CG803": ("another import finder comes before the guard", "ImportOrderWarning"),
    "CG804": ("rules contradict one another", "ImportOrderWarning"),
    "CG805": ("a rule plug-in could not be used", "CudaGuardWarning"),
    "CG806": ("a setting could not be used", "CudaGuardWarning"),
    "CG807": ("the guard itself failed", "CudaGuardWarning"),
    "CG808": ("lazy imports are switched on", "ImportOrderWarning"),
    "CG809": ("a repair is not supported on this platform", "SymbolScopeWarning"),
    "CG810": ("a prerequisite imports the module that it should precede", "ImportOrderWarning"),
    "CG811": ("a watched module was imported past the guard", "ImportOrderWarning"),
}
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG801": (
        "the module that needs it may crash, or give wrong results.",
        "install the module that is named, or see why its import fails",
        "explanation/how-it-works.md",
    ),
    "CG802": (
        "what that module has done when it was imported cannot be undone.",
        "call cudaguard.install() on the first line of the program, or start it with CUDAGUARD=fix",
        "howto/activation.md",
    ),
    "CG803": (
        "that finder answers before the guard, so the modules it finds are not looked at.",
        "install the guard after that finder, or leave the finder out",
        "explanation/how-it-works.md",
    ),
    "CG804": (
        "the guard cannot follow both, and follows neither for that pair.",
        "switch one of the two rules off, or give one of them a narrower condition",
        "reference/rules.md",
    ),
    "CG805": (
        "the rules of that plug-in are not in force.",
        "update the package that has it, or tell its authors what the message says",
        "reference/rules.md",
    ),
    "CG806": (
        "the setting is left out; the rest of the configuration counts.",
        "correct the name or the value that the message names",
        "reference/configuration.md",
    ),
    "CG807": (
        "the program goes on as if there were no guard in that place.",
        "please report it, with what is printed; CUDAGUARD=off switches the guard off",
        "explanation/how-it-works.md",
    ),
    "CG808": (
        "a module may be imported later than its import statement, and after the guard's block.",
        (
            "import what must come early with importlib.import_module(), or use install() in place "
            "of guard()"
        ),
        "explanation/how-it-works.md",
    ),
    "CG809": (
        "the library is used as it is, with the fault that the rule is about.",
        "use the remedy that the message names in place of the repair",
        "explanation/how-it-works.md",
    ),
    "CG810": (
        "the order that the rule asks for cannot be had from here.",
        "import the prerequisite in the program itself, before anything else",
        "reference/rules.md",
    ),
    "CG811": (
        "the rules of that module did not act.",
        "import it by an import statement or importlib, after cudaguard.install()",
        "explanation/how-it-works.md",
    ),
}
LONGEST_COMMAND = 300  # characters; a longer one helps nobody


def guarded_command() -> str:
    """Return the command line of this program with the guard switched on, or "" if unknown."""
    words: list[str] = getattr(sys, "orig_argv", [])  # Python 3.10+
    if not words or "-c" in words or "ipykernel_launcher" in words:  # nobody types the latter
        return ""
    import shlex

    from cudaguard.system.redact import redacted_arguments

    line = f"CUDAGUARD=fix {shlex.join(redacted_arguments(words))}"  # warnings end up in logs
    return line if len(line) <= LONGEST_COMMAND else ""


def switch_off(rule: str) -> str:
    """Return how to do without a rule."""
    return f"CUDAGUARD_RULES=-{rule} or install(disable=[{rule!r}])"


def imported_first(target: str) -> str:
    """Return what has become of a prerequisite."""
    return f"imported before {target}"


def loaded_before(target: str) -> str:
    """Return what has become of a library that was opened in advance."""
    return f"loaded before {target}"


def not_preloaded(rule: Rule, target: str, error: OSError) -> Finding:
    """The loader refuses a library that a rule wants opened before a module."""
    return Finding(
        rule.id,
        f"A library that {target} needs could not be loaded in advance.",
        rule=rule.id,
        evidence=(f"{type(error).__name__}: {error}",),
        consequence=rule.why,
        remedy=f"reinstall the package that the file is from, or {switch_off(rule.id)}",
        links=rule.links,
    )


def out_of_order(rule: Rule, need: str, target: str, where: str) -> Finding:
    """The order a rule asks for was not kept, since the mode or the grade forbids repairs."""
    return Finding(
        rule.id,
        f"{target} was imported before {need}.",
        rule=rule.id,
        evidence=(f"imported at {where}",) if where else (),
        consequence=rule.why,
        remedy=f"import {need} before {target} (mark the line `# isort: skip`), or {FIX}",
        links=rule.links,
    )


def known_fault(rule: Rule, target: str, where: str, versions: Sequence[str]) -> Finding:
    """A rule that only warns applies to a module that is imported.

    Args:
        rule: The rule.
        target: The module.
        where: The line that imports it.
        versions: What is installed of what the rule names, as in ``torch 2.9.1``.
    """
    title = rule.title or rule.why
    return Finding(
        rule.id,
        title if title.startswith(target) else f"{target}: {title}",
        rule=rule.id,
        evidence=(
            *((f"imported at {where}",) if where else ()),
            *((f"installed: {', '.join(versions)}",) if versions else ()),
        ),
        consequence=rule.why if rule.title else "",
        remedy=f"to silence this: {switch_off(rule.id)}",
        links=rule.links,
    )


def too_late(rule: Rule, module: str, *, at_start: bool) -> Finding:
    """A module was imported before the guard could act on it."""
    if at_start:
        remedy = (
            "look for what imports it at the start of the interpreter: a .pth file, sitecustomize"
        )
    else:
        remedy = (
            f"call cudaguard.install() in mode 'fix' before the first `import {module}`, or start "
            "the program under the guard"
        )
    return Finding(
        "CG802",
        f"{module} was imported before rule {rule.id} was in force.",
        rule=rule.id,
        consequence=rule.why,
        remedy=remedy,
        command="" if at_start else guarded_command(),
        links=rule.links,
    )


def prerequisite_failed(rule: str, need: str, target: str, error: BaseException) -> Finding:
    """A module that had to come first could not be imported."""
    return Finding(
        "CG801",
        f"{need} could not be imported before {target}, as rule {rule} asks.",
        rule=rule,
        evidence=(f"{type(error).__name__}: {error}",),
        consequence=f"{target} is imported in the order of the program.",
        remedy=f"see why `import {need}` fails, or switch the rule off: {switch_off(rule)}",
        command=f'python -c "import {need}"',
    )


def position_lost(other: object) -> Finding:
    """Another finder keeps being put before ours."""
    name = getattr(other, "__qualname__", None) or type(other).__qualname__
    return Finding(
        "CG803",
        f"{name} stands before cudaguard on sys.meta_path.",
        severity="info",
        consequence="cudaguard does not see the modules that it finds.",
        remedy="call cudaguard.install() after whatever installs it",
    )


def contradiction(problem: str) -> Finding:
    """Rules ask for orders that cannot all be kept."""
    return Finding(
        "CG804",
        f"Rules contradict one another: {problem}.",
        consequence="none of these orders is enforced.",
        remedy="disable one of these rules by its id, as in "
        + switch_off(problem.partition(" ")[0]),
    )


def plugin_failed(value: str, module: str, error: BaseException) -> Finding:
    """A plug-in raised, or gave something that is no rule."""
    return Finding(
        "CG805",
        f"The rule plug-in {value} could not be used.",
        evidence=(f"{type(error).__name__}: {error}",),
        consequence=f"{module} is imported without the plug-in's rules.",
        remedy="repair or uninstall the plug-in, or set CUDAGUARD_PLUGINS=0",
    )


def bad_setting(problem: str, *, stays_off: bool = False) -> Finding:
    """An environment variable or configuration file could not be used."""
    return Finding(
        "CG806",
        problem,
        consequence="it switches no guard on; calls of install() and guard() do."
        if stays_off
        else "this setting is ignored.",
        remedy="correct it, or remove it",
    )


def no_journal(path: str, error: Exception) -> Finding:
    """The journal cannot be written."""
    return Finding(
        "CG806",
        f"No journal is written to {path}: {error}.",
        consequence="the guard works; its events are in cudaguard.status() only.",
        remedy="see that the folder is there, may be written to and has room, or name another file "
        "(CUDAGUARD_JOURNAL, or `journal` in the configuration file)",
    )


def guard_failed(what: str, error: BaseException) -> Finding:
    """A bug of ours, or an environment we did not foresee."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    at = f" at {step.tb_frame.f_code.co_filename}:{step.tb_lineno}" if step is not None else ""
    return Finding(
        "CG807",
        f"cudaguard itself failed: {what}.",
        evidence=(f"{type(error).__name__}: {error}{at}",),
        consequence="the program goes on unguarded at this point.",
        remedy="please report it with this text; CUDAGUARD=off switches the guard off",
    )


def lazy_imports_on() -> Finding:
    """Imports inside `with cudaguard.guard():` may happen after the block."""
    return Finding(
        "CG808",
        "Lazy imports are switched on for all modules.",
        consequence="an import statement inside `with cudaguard.guard():` may run after the block.",
        remedy='import inside the block with importlib.import_module("name"), which is never '
        "lazy, or use cudaguard.install()",
    )


def unsupported(rule: Rule, action: str) -> Finding:
    """A repair that this platform has no means for."""
    return Finding(
        "CG809",
        f"Rule {rule.id}: {action} is not supported on {sys.platform}.",
        rule=rule.id,
        consequence="the fault is not repaired here: " + rule.why,
        remedy="limit the rule to the platforms it is for: when.platform",
    )


def cyclic_prerequisite(rule: str, need: str, target: str) -> Finding:
    """The prerequisite imports the target itself."""
    return Finding(
        "CG810",
        f"{need} imports {target} itself, so rule {rule} cannot put it first completely.",
        rule=rule,
        severity="info",
        consequence=f"{target} ran while {need} was half imported, as it would without the guard.",
        remedy=f"if nothing is wrong, switch the rule off: {switch_off(rule)}",
    )


def past_the_guard(module: str) -> Finding:
    """A watched module is there, and we never saw it come."""
    return Finding(
        "CG811",
        f"{module} was imported past the guard.",
        severity="info",
        consequence="its rules were not applied.",
        remedy="look for another import hook that stands before cudaguard on sys.meta_path; "
        "loaders that know only load_module cannot be guarded (zip files on Python 3.9)",
    )


def listed(names: Iterable[str]) -> str:
    """Return names as one says them: ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def and_more(count: int, what: str) -> tuple[str, ...]:
    """Return what stands for those that are not shown: ``and 3 more files``, if there are any."""
    return (f"and {count} more {what}",) if count > 0 else ()
