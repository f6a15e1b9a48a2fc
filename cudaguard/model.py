"""The vocabulary of the guard: rules, events, findings, plans, status.

Plain slotted classes rather than dataclasses: they are imported on the first line of a
program, and ``dataclasses`` alone would cost several times the whole start-up budget.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Literal, NoReturn

    from typing_extensions import Self

    # No Iterable: a text is an iterable of texts too.
    Names = list[str] | tuple[str, ...] | set[str] | frozenset[str]
    Grade = Literal["automatic", "opt-in", "report"]
    Severity = Literal["info", "warning", "error"]
    _Dict = dict[str, Any]
else:
    _Dict = dict

MODES = ("off", "observe", "warn", "fix", "strict")
GRADES = ("automatic", "opt-in", "report")
SEVERITIES = ("info", "warning", "error")


class Record:
    """An immutable value whose fields are its slots, compared and shown field by field."""

    __slots__: tuple[str, ...] = ()

    def _fill(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only; use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only")

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        return type(self)(**{**self._values(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain lists, dictionaries, strings and numbers (JSON-ready)."""
        return {name: _plain(value) for name, value in self._values().items()}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._values() == other._values()

    def __hash__(self) -> int:
        # Strings alone: equal tables may differ in order and in how they show themselves.
        texts = (value for value in self._values().values() if isinstance(value, str))
        return hash((type(self), *texts))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self._values())


def _rebuild(cls: type[Record], values: dict[str, Any]) -> Record:
    return cls(**values)


def _plain(value: object) -> object:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


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

    __slots__ = (
        "actions", "dist", "fixed_in", "grade", "id", "links", "needs", "title", "verified",
        "watch", "when", "why",
    )  # fmt: skip
    id: str
    watch: tuple[str, ...]
    why: str
    title: str
    dist: tuple[str, ...]
    when: Mapping[str, Any]
    needs: tuple[str, ...]
    actions: tuple[Mapping[str, Any], ...]
    grade: Grade
    links: tuple[str, ...]
    fixed_in: str | None
    verified: str | None

    def __init__(
        self,
        id: str,
        watch: Names,
        why: str,
        *,
        title: str = "",
        dist: Names = (),
        when: Mapping[str, Any] | None = None,
        needs: Names = (),
        actions: Sequence[Mapping[str, Any]] = (),
        grade: Grade = "automatic",
        links: Names = (),
        fixed_in: str | None = None,
        verified: str | None = None,
    ) -> None:
        self._fill(
            id=id, watch=_listed(watch), why=why, title=title, dist=_listed(dist),
            when=_frozen({} if when is None else when), needs=_listed(needs),
            actions=_frozen(actions), grade=grade, links=_listed(links), fixed_in=fixed_in,
            verified=verified,
        )  # fmt: skip


def _listed(values: Any) -> Any:
    # Anything else stays as it is: `watch="torch"` is refused later, not taken for five names.
    return tuple(values) if isinstance(values, (list, set, frozenset)) else values


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

    __slots__ = ("kind", "name", "thread", "time", "where")
    kind: str
    name: str
    time: float
    thread: int
    where: str

    def __init__(self, kind: str, name: str, time: float, thread: int, where: str = "") -> None:
        self._fill(kind=kind, name=name, time=time, thread=thread, where=where)


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

    __slots__ = (
        "command", "consequence", "evidence", "id", "links", "remedy", "rule", "severity", "what",
    )  # fmt: skip
    id: str
    what: str
    rule: str | None
    severity: Severity
    evidence: tuple[str, ...]
    consequence: str
    remedy: str
    command: str
    links: tuple[str, ...]

    def __init__(
        self,
        id: str,
        what: str,
        *,
        rule: str | None = None,
        severity: Severity = "warning",
        evidence: Iterable[str] = (),
        consequence: str = "",
        remedy: str = "",
        command: str = "",
        links: Iterable[str] = (),
    ) -> None:
        links = tuple(links)
        if not command and not links and severity != "info" and id.startswith("CG"):
            command = f"cudaguard explain {id}"
        self._fill(
            id=id, what=what, rule=rule, severity=severity, evidence=tuple(evidence),
            consequence=consequence, remedy=remedy, command=command, links=links,
        )  # fmt: skip

    def __str__(self) -> str:
        """Return a headline and labeled lines; what is empty is left out."""
        return f"[{self.id}] {self._told()}"

    def as_error(self) -> str:
        """Return what an error that is raised for it says: what, remedy and command."""
        return self._told(leave_out=("evidence", "consequence"))

    def _told(self, leave_out: tuple[str, ...] = ()) -> str:
        from cudaguard.files.text import labeled, printable_part

        lines = [self.what]
        for label, texts in labeled(self.to_dict()):
            lines += (f"  {label}: {text}" for text in texts if label not in leave_out)
        return "\n".join(map(printable_part, lines))


class Plan(Record):
    """What follows from the rules for one watched module, in the order of doing.

    Args:
        name: The watched module.
        needs: Pairs of (module to import first, id of the rule that asks for it).
        told: Rules graded ``report`` that apply to this module.
        problems: Contradictions among the rules, in words.
    """

    __slots__ = ("name", "needs", "problems", "told")
    name: str
    needs: tuple[tuple[str, str], ...]
    told: tuple[Rule, ...]
    problems: tuple[str, ...]

    def __init__(
        self,
        name: str,
        needs: Iterable[tuple[str, str]] = (),
        told: Iterable[Rule] = (),
        problems: Iterable[str] = (),
    ) -> None:
        self._fill(name=name, needs=tuple(needs), told=tuple(told), problems=tuple(problems))


class Status(Record):
    """A snapshot of the guard.

    Args:
        mode: The mode in force; ``off`` without a guard.
        watched: Names of the modules that are watched.
        events: What was seen so far, oldest first (the newest ten thousand are kept).
        findings: What was found so far in this process.
        rules: The rules in force.
        changes: What the guard has changed in this process, in words; an entry that
            `uninstall` cannot take back ends in ``(stays)``.
    """

    __slots__ = ("changes", "events", "findings", "mode", "rules", "watched")
    mode: str
    watched: tuple[str, ...]
    events: tuple[Event, ...]
    findings: tuple[Finding, ...]
    rules: tuple[Rule, ...]
    changes: tuple[str, ...]

    def __init__(
        self,
        mode: str,
        watched: Iterable[str] = (),
        events: Iterable[Event] = (),
        findings: Iterable[Finding] = (),
        rules: Iterable[Rule] = (),
        changes: Iterable[str] = (),
    ) -> None:
        self._fill(
            mode=mode, watched=tuple(watched), events=tuple(events), findings=tuple(findings),
            rules=tuple(rules), changes=tuple(changes),
        )  # fmt: skip

    def __str__(self) -> str:
        """Return the mode, what was changed and what was found, for a terminal."""
        from cudaguard.files.text import printable

        head = f"cudaguard: mode {self.mode}, {len(self.rules)} rules in force"
        changes = (printable(f"changed: {item}") for item in self.changes)
        return "\n".join((head, *changes, *map(str, self.findings)))
