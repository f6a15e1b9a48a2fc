"""The vocabulary of the guard: rules, events, findings, status."""

from __future__ import annotations

from cudaguard.values import KW_ONLY, NamedTuple, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Generic, Literal, NoReturn, TypeVar

    Given = TypeVar("Given")
    Kept = TypeVar("Kept")

    class Field(Generic[Given, Kept]):
        """A field that takes more than it keeps."""

        def __get__(self, record: object, kind: object) -> Kept: ...
        def __set__(self, record: object, value: Given) -> None: ...

    # No Iterable: a text is an iterable of texts too.
    Names = list[str] | tuple[str, ...] | set[str] | frozenset[str]
    Strings = Field[Names, tuple[str, ...]]
    Tables = Field[Sequence[Mapping[str, Any]], tuple[Mapping[str, Any], ...]]
    Grade = Literal["automatic", "opt-in", "report"]
    Severity = Literal["info", "warning", "error"]
    _EMPTY: Any
    _Dict = dict[str, Any]
else:
    _EMPTY = ()
    _Dict = dict
__all__ = ("KW_ONLY", "NamedTuple", "Record")  # handed on


class Table(_Dict):
    """A dictionary that cannot be changed; tables in it are such tables, and lists are tuples."""

    __slots__ = ()

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__({key: _frozen(value) for key, value in values.items()})

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("tables of a rule are read-only; change a copy, dict(table)")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return Table, (dict(self),)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return value if type(value) is Table else Table(value)
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _listed(values: Any) -> Any:
    # Anything else stays as it is: `watch="torch"` is refused later, not taken for five names.
    return tuple(values) if isinstance(values, (list, set, frozenset)) else values


class Rule(Record):
    """One piece of knowledge: what goes wrong around an import, where, and the cure.

    Args:
        id: Stable identifier. ``CG...`` is reserved for rules that ship with the package.
        watch: Names of the modules whose import makes the rule act, for example
            ``("decord",)``. A package also covers the native loads of its sub-modules.
        why: One sentence that a user can act on.
        title: One line for lists; empty means the same as `why`.
        dist: Requirements (`PEP 508 <https://peps.python.org/pep-0508/>`_ names with
            version specifiers). The rule applies when any one of them is installed in a
            matching version; an empty tuple means always.
        when: Further conditions, all of which must hold. Keys: ``python`` (version
            specifier), ``platform`` (``sys.platform``, one or several), ``machine`` (one or
            several), ``env`` (variable -> exact value, or True / False for set / not set),
            ``dists`` (distribution -> version specifier, ``""`` for any version), ``unless``
            (such tables, for none of which the rule is).
        needs: Modules that must be imported before the watched one, in this order; ``context``
            among them stands for a CUDA context (see `install`, `context`).
        actions: Repairs, each a table with one verb and its parameters, for example
            ``{"load_local": "libdecord.so*"}``; docs/reference/rules.md lists all verbs.
        grade: ``automatic`` (repaired by default), ``opt-in`` (when enabled by id; an order also
            where the program imports both) or ``report`` (reported, never repaired).
        links: Public evidence.
        fixed_in: First upstream release that does not need the rule, if there is one.
        verified: Date and versions with which the fault was last reproduced; None means
            that it was not reproduced for this project.

    Raises:
        RuleError: by `add_rule` and `install`, not by the constructor, which takes
            any values; a malformed rule is refused where its origin is known.
    """

    id: str
    watch: Strings
    why: str
    _: KW_ONLY
    title: str = ""
    dist: Strings = _EMPTY
    when: Mapping[str, Any] = Table({})
    needs: Strings = _EMPTY
    actions: Tables = _EMPTY
    grade: Grade = "automatic"
    links: Strings = _EMPTY
    fixed_in: str | None = None
    verified: str | None = None

    @staticmethod
    def _complete(values: dict[str, Any]) -> None:
        for name in ("watch", "dist", "needs", "links"):
            values[name] = _listed(values[name])
        values.update(when=_frozen(values["when"]), actions=_frozen(values["actions"]))


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
        is_told = values["command"] or values["links"] or values["severity"] == "info"
        if not is_told and values["id"].startswith("CG"):
            values["command"] = f"cudaguard explain {values['id']}"

    def __str__(self) -> str:
        """Return a headline, and below it what follows and labeled lines; what is empty is not."""
        return self._told(f"[{self.id}] ")

    def as_error(self) -> str:
        """Return what an error that is raised for it says: what, remedy and command."""
        return self._told(parts=("fix", "more", "run"))

    def told(self, width: int, before: str) -> str:
        """Return it as text that is wrapped, for behind what stands before it."""
        return self._told(f"{before}[{self.id}] ", width)[len(before) :]

    def _told(self, lead: str = "", width: int = 0, **options: Any) -> str:
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
