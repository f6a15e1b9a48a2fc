"""Findings: the objects handed back, and each kind of finding with its id and words."""

from __future__ import annotations

import sys

from cudaguard.core.rule import Permit
from cudaguard.model import KW_ONLY, TYPE_CHECKING, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from cudaguard.core.rule import Rule, Strings
    from cudaguard.model import Severity
    from cudaguard.system.facts import Facts, Versions

_EMPTY: Any = ()


class Event(Record):
    """Something the guard saw.

    Args:
        kind: ``import`` (a watched module is about to be imported), ``prerequisite``,
            ``repair``, ``finding``, ``install`` or ``uninstall``; while a journal is written also
            ``imported`` and ``failed``, ``mapping`` (a library is about to be loaded),
            ``mapped`` (a file that came with it) and ``loaded``; under ``cudaguard run``
            ``start``, ``error`` (the one that ends the program) and, when traced, ``end``.
        name: The module, library or identifier concerned.
        time: Seconds since the epoch.
        thread: ``threading.get_ident()`` of the thread.
        where: ``file:line`` of the code that caused it, or an empty string.
    """

    kind: str
    name: str
    time: float
    thread: int
    where: str = ""


class Finding(Record):
    """One fault, or one thing worth knowing, in words a user can act on.

    Args:
        id: Identifier of the rule or detector that found it.
        what: What happened, in one sentence.
        rule: The rule it comes from, or None for a detector.
        severity: ``info``, ``warning`` or ``error``.
        evidence: Facts that show it: paths, versions, symbols, lines of code.
        consequence: What will go wrong if nothing is done.
        remedy: What to do.
        command: The exact next command; with no link, ``cudaguard explain ID`` if it is empty.
        links: Where it was reported or is documented.
    """

    id: str
    what: str
    _: KW_ONLY
    rule: str | None = None
    severity: Severity = "warning"
    evidence: Strings = _EMPTY
    consequence: str = ""
    remedy: str = ""
    command: str = ""
    links: Strings = _EMPTY

    @staticmethod
    def _complete(values: dict[str, Any]) -> None:
        values.update(evidence=tuple(values["evidence"]), links=tuple(values["links"]))
        has_next_step = values["command"] or values["links"] or values["severity"] == "info"
        if not has_next_step and values["id"].startswith("CG"):
            values["command"] = f"cudaguard explain {values['id']}"

    def __str__(self) -> str:
        """Return a headline, and below it what follows and labeled lines; what is empty is not."""
        return self._text(f"[{self.id}] ")

    def as_error(self) -> str:
        """Return what an error that is raised for it says: what, remedy and command."""
        return self._text(parts=("fix", "more", "run"))

    def wrapped(self, width: int, before: str) -> str:
        """Return it as text that is wrapped, for behind what stands before it."""
        return self._text(f"{before}[{self.id}] ", width)[len(before) :]

    def _text(self, lead: str = "", width: int = 0, **options: Any) -> str:
        from cudaguard.files.layout import Page

        page = Page(width=width, more="cudaguard.status().findings")
        page.finding(self.to_dict(), lead, **options)
        return str(page)


class Status(Record):
    """A snapshot of the guard.

    Args:
        mode: The mode in force; ``off`` without a guard.
        woken_by: Why more of the guard was loaded than its kernel: the import, load or call.
        watched: Names of the modules that are watched.
        events: What was seen so far, oldest first (the newest ten thousand are kept).
        findings: What was found so far in this process.
        rules: The rules in force.
        changes: What the guard has changed in this process, in words; an entry that
            `uninstall` cannot take back ends in ``(stays)``.
    """

    mode: str
    woken_by: str = ""
    watched: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    findings: tuple[Finding, ...] = ()
    rules: tuple[Rule, ...] = ()
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the mode, what was changed and what was found, for a terminal."""
        from cudaguard.files.text import printable

        head = f"cudaguard: mode {self.mode}, {len(self.rules)} rules in force"
        head += printable(f", woken by {self.woken_by}") if self.woken_by else ""
        changes = (printable(f"changed: {item}") for item in self.changes)
        return "\n".join((head, *changes, *map(str, self.findings)))


# --- Kinds ----------------------------------------------------------------------------------------

SHOWN = 3  # of many files, symbols or libraries that are evidence


class Kind(Record):
    """Kind of finding: its id, and all words that do not depend on the case."""

    id: str
    title: str  # what it is about, for lists and pages
    category: str = ""  # class of the warning; empty where what a rule does decides
    _: KW_ONLY
    severity: Severity = "warning"  # how bad it is
    consequence: str = ""  # what happens to the program
    remedy: str = ""  # what to do
    command: str = ""  # what can be run at once
    page: str = ""  # page of the documentation, as in ``howto/graphs.md``
    links: tuple[str, ...] = ()

    def found(self, what: str, *evidence: str, **others: Any) -> Finding:
        """Return a finding of `what`, a sentence; empty evidence is left out."""
        for name in ("severity", "consequence", "remedy", "command", "links"):
            others.setdefault(name, getattr(self, name))
        return Finding(self.id, what, evidence=tuple(filter(None, evidence)), **others)

    def about(self) -> Finding:
        """Return what the id means."""
        off = f"silence it: {switch_off(self.id)}"
        return Finding(
            self.id,
            f"{sentence(self.title)}.",
            severity="info",
            consequence=self.consequence,
            remedy=f"{self.remedy}; or {off}" if self.remedy else off,
            command=self.command,
            links=(*filter(None, [_where(self.page)]), *self.links),
        )


def of_rule(rule: Rule, what: str, *evidence: str, **others: Any) -> Finding:
    """Return a finding that a rule is about; `evidence` and `others` as for a kind."""
    others = {"consequence": rule.why, "links": rule.links, **others}
    return Finding(rule.id, what, rule=rule.id, evidence=tuple(filter(None, evidence)), **others)


FITTING = "install the version that fits what is installed"
FIX = "use mode 'fix' (CUDAGUARD=fix, cudaguard run --mode fix, or cudaguard.install('fix'))"
PYTHON_ITSELF = "Python itself"  # where it takes the place of a rule: a package before its parts


def guarded_command() -> str:
    """Return what to run before the program, or "" in a notebook, whose kernel has begun.

    Where the program asks for a mode, the variable changes nothing: what finds that place.
    Without the program and its arguments: warnings end up in logs and records.
    """
    if _asked_for():
        return Permit.asks_again
    command = '$env:CUDAGUARD = "fix"' if sys.platform == "win32" else "export CUDAGUARD=fix"
    return "" if "ipykernel" in sys.modules else command


def _asked_for() -> str:
    """Return the mode that the program asks for, if it is not one that repairs."""
    mode = Permit.asked_for
    return "" if mode in ("fix", "strict") else mode


def have_it_repaired(rule: Rule) -> tuple[str, str]:
    """Return what makes the guard repair what a rule is about, and the command for it."""
    if rule.grade == "report":
        return "give the rule the grade 'automatic'", ""
    if mode := _asked_for():
        how = f"use mode 'fix' where the program asks for {mode!r}"
        return f"{how} (cudaguard.install('fix'), pytest --cudaguard-mode fix)", guarded_command()
    return FIX, guarded_command()


def switch_off(rule: str) -> str:
    """Return how to do without a rule."""
    return f"CUDAGUARD_RULES=-{rule} or install(disable=[{rule!r}])"


# --- What rules are about -------------------------------------------------------------------------


def not_preloaded(rule: Rule, target: str, error: OSError) -> Finding:
    """The loader refuses a library that a rule wants opened before a module."""
    return of_rule(
        rule,
        f"cudaguard could not load a library that {target} needs before it.",
        f"{type(error).__name__}: {error}",
        remedy="reinstall the package that contains the file, or switch the rule off: "
        + switch_off(rule.id),
    )


def out_of_order(rule: Rule, need: str, target: str, where: str, follows: str = "") -> Finding:
    """The order a rule asks for was not kept, since the mode or the grade forbids repairs.

    `where` is the line that imports the target, `follows` one that will import what it needs.
    """
    how, command = have_it_repaired(rule)
    if follows:  # what stands between may matter to what comes first: the user has to say
        switch = f"CUDAGUARD_RULES=+{rule.id}"
        how, command = f"set {switch} to have cudaguard do it", f"export {switch}"
    return of_rule(
        rule,
        f"{target} was imported before {need}.",
        f"imported at {where}" if where else "",
        f"{need} is imported at {follows}" if follows else "",
        remedy=f"import {need} before {target} (mark the line `# isort: skip`), or {how}",
        command=command,
    )


def known_fault(rule: Rule, target: str, where: str, facts: Facts) -> Finding:
    """A rule that only warns applies to what is imported."""
    from cudaguard.system.facts import fitting_release

    title, versions = rule.title or rule.why, named_versions(rule, facts.version)
    wanted = fitting_release(rule.when.get("unless", ()), rule.watch[0], facts.version)
    off = switch_off(rule.id)
    return of_rule(
        rule,
        f"{title if title.startswith(target) else f'{target}: {title}'}.",
        f"imported at {where}" if where else "",
        f"installed: {', '.join(versions)}" if versions else "",
        consequence=rule.why if rule.title else "",
        remedy=FITTING if wanted else f"silence this if it does not affect your program: {off}",
        command=wanted,
    )


def named_versions(rule: Rule, version_of: Versions) -> list[str]:
    """Return what is installed of the distributions that a rule names, as in ``torch 2.9.1``."""
    from cudaguard.system.facts import required_name

    names = (*map(required_name, rule.dist), *rule.when.get("dists", {}))
    found = ((name, version_of(name)) for name in dict.fromkeys(names))
    return [f"{name} {version}" for name, version in found if version is not None]


# --- What the core itself finds -------------------------------------------------------------------

PREREQUISITE_FAILED = Kind(
    "CG801",
    "a module that a rule needs first could not be imported",
    "ImportOrderWarning",
    consequence="The module that needs it may crash, or give wrong results.",
    remedy="install the module that the message names, or find out why its import fails",
    page="explanation/how-it-works.md",
)
TOO_LATE = Kind(
    "CG802",
    "the guard was installed after a module was imported",
    consequence="What the module did while it was imported cannot be undone.",
    remedy="call cudaguard.install() on the first line of the program, or start it with "
    "CUDAGUARD=fix",
    page="howto/activation.md",
)
CONTRADICTION = Kind(
    "CG804",
    "rules ask for import orders that contradict each other",
    "ImportOrderWarning",
    consequence="cudaguard keeps none of these orders.",
    remedy="switch one of these rules off, or give one of them a narrower condition",
    page="reference/rules.md",
)
PLUGIN_FAILED = Kind(
    "CG805",
    "a rule plug-in could not be used",
    "CudaGuardWarning",
    consequence="The plug-in's rules do not act.",
    remedy="repair or uninstall the plug-in, or set CUDAGUARD_PLUGINS=0",
    page="reference/rules.md",
)
BAD_SETTING = Kind(
    "CG806",
    "a setting could not be used",
    "CudaGuardWarning",
    consequence="cudaguard ignores this setting, or the whole file.",
    remedy="correct it, or remove it",
    page="reference/configuration.md",
)
GUARD_FAILED = Kind(
    "CG807",
    "the guard itself failed",
    "CudaGuardWarning",
    consequence="The program goes on unguarded at this point.",
    remedy="report it with this text; CUDAGUARD=off switches the guard off",
    page="explanation/how-it-works.md",
)
UNSUPPORTED = Kind(
    "CG809",
    "a repair is not supported on this platform",
    "SymbolScopeWarning",
    consequence="The library is used unrepaired, with the fault that the rule describes.",
    remedy="limit the rule to the platforms that support it, with when.platform",
    page="explanation/how-it-works.md",
)
PAST_THE_GUARD = Kind(
    "CG811",
    "a watched module was imported past the guard",
    "ImportOrderWarning",
    severity="info",
    consequence="The rules for this module did not act.",
    remedy="import it with an import statement, and call cudaguard.install() after what adds "
    "import hooks; loaders without exec_module (zip files in 3.9) cannot be guarded",
    page="explanation/how-it-works.md",
)


def too_late(rule: Rule, module: str, *, at_start: bool) -> Finding:
    """A module was imported before the guard could act on it."""
    if at_start:
        remedy = "find what imports it when the interpreter starts: a .pth file or sitecustomize"
    else:
        remedy = (
            f"call cudaguard.install() in mode 'fix' before the first `import {module}`, or set "
            "CUDAGUARD=fix"
        )
    return TOO_LATE.found(
        f"{module} was imported before cudaguard could repair it (rule {rule.id}).",
        rule=rule.id,
        consequence=rule.why,
        remedy=remedy,
        command="python -X importtime -c pass" if at_start else guarded_command(),
        links=rule.links,
    )


def prerequisite_failed(rule: str, need: str, target: str, error: BaseException) -> Finding:
    """A module that had to come first could not be imported."""
    return PREREQUISITE_FAILED.found(
        f"{need} could not be imported before {target}, as rule {rule} requires.",
        f"{type(error).__name__}: {error}",
        rule=rule,
        consequence=f"The import of {target} goes on without {need}; in mode 'strict' it fails.",
        remedy=f"find out why `import {need}` fails, or switch the rule off: {switch_off(rule)}",
        command=f'python -c "import {need}"',
    )


def contradiction(problem: str) -> Finding:
    """Rules ask for orders that cannot all be kept."""
    sides = (side.partition(" wants ")[0] for side in problem.split("; "))
    return CONTRADICTION.found(
        "Rules ask for import orders that contradict each other.",
        *problem.split("; "),
        remedy="switch one of these rules off, for example "
        + switch_off(next(rule for rule in sides if rule != PYTHON_ITSELF)),
    )


def plugin_failed(value: str, module: str, error: BaseException) -> Finding:
    """A plug-in raised, or gave something that is no rule."""
    return PLUGIN_FAILED.found(
        f"The rule plug-in {value} could not be used.",
        f"{type(error).__name__}: {error}",
        consequence=f"{module} is imported without the plug-in's rules.",
    )


def bad_setting(problem: str, *, stays_off: bool = False) -> Finding:
    """An environment variable or configuration file could not be used."""
    if not stays_off:
        return BAD_SETTING.found(problem)
    off = "The guard stays off unless the program calls install() or guard()."
    return BAD_SETTING.found(problem, consequence=off)


def no_journal(path: str, error: Exception) -> Finding:
    """The journal cannot be written."""
    return BAD_SETTING.found(
        f"cudaguard cannot write its journal to {path}.",
        str(error),
        consequence="The guard works, but its events from here on are only in cudaguard.status().",
        remedy="make sure that the folder exists and can be written to, or name another file "
        "(CUDAGUARD_JOURNAL, or `journal` in the configuration file)",
    )


def guard_failed(what: str, error: BaseException) -> Finding:
    """A bug of ours, or an environment we did not foresee."""
    return GUARD_FAILED.found(f"cudaguard itself failed: {what}.", _with_place(error))


def log_failed(error: BaseException) -> Finding:
    """Logging has raised what it was to keep: a handler or filter of the program, mostly."""
    return GUARD_FAILED.found(
        f"Python's logging raised {type(error).__name__} when cudaguard wrote to it.",
        _with_place(error),
        consequence="The program and the guard go on. The log may lack what cudaguard did; "
        "cudaguard.status() has it.",
        remedy="correct the log handler or filter that raises",
    )


def _with_place(error: BaseException) -> str:
    """Return an error with the place that raised it."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    at = f" at {step.tb_frame.f_code.co_filename}:{step.tb_lineno}" if step is not None else ""
    return f"{type(error).__name__}: {error}{at}"


def unsupported(rule: Rule, action: str) -> Finding:
    """A repair that this platform has no means for."""
    what = f"cudaguard cannot apply {action} of rule {rule.id} on {sys.platform}."
    return UNSUPPORTED.found(what, rule=rule.id, consequence=rule.why)


def past_the_guard(module: str) -> Finding:
    """A watched module is there, and we never saw it come."""
    return PAST_THE_GUARD.found(
        f"cudaguard did not see the import of {module}, probably because of another import hook.",
        consequence=f"The rules for {module} did not act.",
    )


# --- Pieces of sentences --------------------------------------------------------------------------


def _where(page: str) -> str:
    """Return the path of a page of ours, in a checkout or as it is installed; "" if it is not."""
    from cudaguard.files import os

    above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    schemes = (above, sys.prefix, getattr(sys.modules.get("site"), "USER_BASE", None))
    folders = (os.path.join(top, "share", "doc", "cudaguard") for top in schemes if top)
    pages = (os.path.join(top, page) for top in (os.path.join(above, "docs"), *folders) if page)
    return next(filter(os.path.isfile, pages), "")


def sentence(text: str) -> str:
    """Return a text with a capital letter."""
    return f"{text[:1].upper()}{text[1:]}"


def listed(names: Iterable[str]) -> str:
    """Return names as one says them: ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def first_few(items: Sequence[str], what: str) -> tuple[str, ...]:
    """Return the first of some lines of evidence, and what stands for the others, if any."""
    left = len(items) - SHOWN
    return (*items[:SHOWN], *([f"and {counted(left, f'more {what}')}"] if left > 0 else ()))


def counted(count: int, what: str) -> str:
    """Return a number and a noun, which is given in the plural."""
    if count == 1:
        what = f"{what[:-3]}y" if what.endswith("ies") else what.removesuffix("s")
    return f"{count} {what}"
