"""Rules as data that cannot be changed, and permits: what a repair may do for a rule."""

from __future__ import annotations

from cudaguard.model import GRADES, KW_ONLY, TYPE_CHECKING, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Generic, NoReturn, TypeVar

    from cudaguard.model import Grade

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

_EMPTY: Any = ()


class Table(dict):  # type: ignore[type-arg]  # what TOML has
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
            # Anything else stays: `watch="torch"` is refused later, not taken for five names.
            if isinstance(values[name], (list, set, frozenset)):
                values[name] = tuple(values[name])
        values.update(when=_frozen(values["when"]), actions=_frozen(values["actions"]))


def actions_of(rule: Rule, *verbs: str) -> tuple[Mapping[str, Any], ...]:
    """Return the rule's actions with these verbs, in their order."""
    return tuple(action for action in rule.actions if not action.keys().isdisjoint(verbs))


def values_of(rule: Rule, *verbs: str) -> tuple[str, ...]:
    """Return the values of these verbs in the rule's actions, in their order."""
    return tuple(action[verb] for action in rule.actions for verb in verbs if verb in action)


# --- What may be done in a mode, for a rule of a grade: the one place where that is asked ---------

REPAIRING = ("fix", "strict")  # modes
INSTALL = "cudaguard.install()"
_, OPT_IN, REPORT = GRADES


class Permit:
    """Permit of a repair: one object, switched when mode or rules change, read at every call.

    It `acts` if it may change anything, `looks` as long as its rule is in force, and `tells` what
    it finds, which is otherwise only recorded.
    """

    __slots__ = ("acts", "looks", "tells")
    # The mode that the program asks for by an argument of install() or guard(); empty if none.
    asked_for = ""
    # What finds the place where it does so, or asks for another one.
    asks_again = 'grep -rn cudaguard --include="*.py" .'

    def __init__(self, *, acts: bool = False, looks: bool = False, tells: bool = False) -> None:
        self.acts, self.looks, self.tells = acts, looks, tells

    def switch(self, other: Permit | None) -> None:
        """Allow what another permit allows, nothing for None."""
        self.acts = other is not None and other.acts
        self.looks = other is not None and other.looks
        self.tells = other is not None and other.tells


def permit_for(mode: str, grade: str = "automatic") -> Permit:
    """Return what may be done in a mode for a rule of a grade; the rule is in force."""
    acts = mode in REPAIRING and grade != "report"
    return Permit(acts=acts, looks=mode != "off", tells=mode not in ("off", "observe"))


def repaired_by(rules: Iterable[Rule], mode: str) -> frozenset[str]:
    """Return the ids of those rules in force whose fault the guard repairs in a mode."""
    return frozenset(rule.id for rule in rules if permit_for(mode, rule.grade).acts)


def install_call(rule: Rule) -> str:
    """Return the call that has the guard repair the fault of a rule; empty if it cannot."""
    if rule.grade == REPORT:
        return ""
    return f'cudaguard.install(enable=["{rule.id}"])' if rule.grade == OPT_IN else INSTALL
