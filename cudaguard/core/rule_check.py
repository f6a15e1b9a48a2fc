"""Checks that a rule is well formed, be it from code, a file or a plug-in."""

from __future__ import annotations

from cudaguard.core.table import RESERVED_PREFIX
from cudaguard.errors import RuleError
from cudaguard.model import GRADES, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, NoReturn

REQUIRED = ("id", "watch", "why")
WHEN_KEYS = ("python", "platform", "machine", "env", "dists", "unless")


def check_rule(
    rule: object, origin: str, *, known: Iterable[str] = (), is_toml: bool = False
) -> Rule:
    """Return `rule` if it is well formed.

    Args:
        rule: What was given as a rule.
        origin: Where it comes from, for the message: a file, a plug-in, ``add_rule()``.
        known: Identifiers that may be replaced although they are reserved.
        is_toml: True if it was written as TOML. Messages show actions as they are written.

    Raises:
        RuleError: naming the rule, its origin, the field, and what was expected.
    """
    if not isinstance(rule, Rule):
        raise RuleError(f"{origin}: expected a cudaguard.Rule, got {type(rule).__name__} {rule!r}")

    def refuse(field: str, problem: str) -> NoReturn:
        raise RuleError(f"{origin}: rule {rule.id!r}, {field}: {problem}")

    _text(rule.id, "id", refuse)
    if not rule.id.replace("-", "").replace("_", "").isalnum():
        refuse("id", "expected letters, digits, '-' and '_'")
    if rule.id.upper().startswith(RESERVED_PREFIX) and rule.id not in known:
        refuse("id", "ids that start with CG belong to the built-in rules; choose another prefix")
    _text(rule.why, "why", refuse)
    if not isinstance(rule.title, str):
        refuse("title", f"expected a text, got {rule.title!r}")
    for field in ("fixed_in", "verified"):
        if getattr(rule, field) is not None:
            _text(getattr(rule, field), field, refuse)
    for field in ("watch", "dist", "needs", "links"):
        _strings(getattr(rule, field), field, refuse)
    if not rule.watch:
        refuse("watch", "expected at least one module name")
    for field in ("watch", "needs"):
        for name in getattr(rule, field):
            if not all(part.isidentifier() for part in name.split(".")):
                refuse(field, f"{name!r} is not a module name such as 'torch' or 'nvidia.dali'")
    for name in rule.needs:
        for watched in rule.watch:
            if name == watched:
                refuse("needs", f"{name!r} is also watched by this rule: it cannot precede itself")
            if name.startswith(f"{watched}."):
                refuse("needs", f"{name!r} cannot precede {watched!r}, which Python imports first")
    if rule.grade not in GRADES:
        refuse("grade", f"got {rule.grade!r}, expected one of {', '.join(GRADES)}")
    if rule.actions != ():
        _check_actions(rule, refuse, is_toml=is_toml)
    for requirement in rule.dist:
        _requirement(requirement, refuse)
    _check_when(rule.when, refuse)
    return rule


def rules_from_tables(
    tables: Iterable[Mapping[str, Any]], origin: str, *, known: Iterable[str] = ()
) -> tuple[Rule, ...]:
    """Return the rules that the tables of one file describe.

    Args:
        tables: Tables with the fields of `Rule` as keys.
        origin: The file's name, for messages.
        known: Identifiers of built-in rules, which a file may replace.

    Raises:
        RuleError: naming the file, the table, the key, and what was expected.
    """
    rules = []
    for number, table in enumerate(tables, 1):
        where = f"{origin}: [[rules]] number {number}"
        for key in table:
            if key not in Rule._fields:
                raise RuleError(
                    f"{where}: unknown key {key!r}; expected one of {', '.join(Rule._fields)}"
                )
        for key in REQUIRED:
            if key not in table:
                raise RuleError(f"{where}: the key {key!r} is missing")
        rules.append(check_rule(Rule(**table), where, known=known, is_toml=True))
    return tuple(rules)


def _check_actions(rule: Rule, refuse: _Refuse, *, is_toml: bool) -> None:
    from cudaguard.core.verbs import fault_in, python_text, toml_text

    show = toml_text if is_toml else python_text
    if not isinstance(rule.actions, tuple):
        table = f"; write {show([rule.actions])}" if isinstance(rule.actions, dict) else ""
        refuse("actions", f"expected a list of tables, got {show(rule.actions)}{table}")
    for action in rule.actions:
        fault = fault_in(action, rule, show)
        if fault is not None:
            refuse(*fault)


def _text(value: object, field: str, refuse: _Refuse) -> None:
    if not isinstance(value, str) or not value.strip():
        refuse(field, f"expected a text that is not empty, got {value!r}")


def _strings(value: object, field: str, refuse: _Refuse) -> None:
    if isinstance(value, str):
        refuse(field, f"expected a list of strings, got the string {value!r}; write [{value!r}]")
    if not isinstance(value, tuple) or not all(isinstance(item, str) and item for item in value):
        refuse(field, f"expected a list of strings that are not empty, got {value!r}")


def _check_when(when: object, refuse: _Refuse) -> None:
    if not isinstance(when, dict):
        refuse("when", f"expected a table, got {when!r}")
    for key, value in when.items():
        field = f"when.{key}"
        if key not in WHEN_KEYS:
            refuse("when", f"unknown key {key!r}, expected one of {', '.join(WHEN_KEYS)}")
        if key == "python":
            _specifier(value, field, refuse)
        elif key in ("platform", "machine"):
            names = (value,) if isinstance(value, str) else value
            if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
                refuse(field, f"expected a name or a list of names, got {value!r}")
        elif key == "unless":
            if not isinstance(value, (list, tuple)):
                refuse(field, f"expected a list of tables, got {value!r}")
            for table in value:
                if not isinstance(table, dict):
                    refuse(field, f"expected tables in the list, got {table!r}")
                _check_when({"dists": table}, refuse)
        elif not isinstance(value, dict):
            refuse(field, f"expected a table, got {value!r}")
        elif not all(isinstance(name, str) and name.strip() for name in value):
            refuse(field, f"expected names as keys, got {list(value)!r}")
        elif key == "env":
            for name, wanted in value.items():
                if not isinstance(wanted, (str, bool)):
                    refuse(f"{field}.{name}", f"expected a text, true or false, got {wanted!r}")
        else:
            for name, specifier in value.items():
                _specifier(specifier, f"{field}.{name}", refuse)


def _specifier(value: object, field: str, refuse: _Refuse) -> None:
    if not isinstance(value, str):
        refuse(field, f"expected a version specifier such as '>=2.0,<3', got {value!r}")
    if value:
        from packaging.specifiers import SpecifierSet

        try:
            SpecifierSet(value)
        except (ValueError, RecursionError):
            refuse(field, f"expected a version specifier such as '>=2.0,<3', got {value!r}")


def _requirement(value: str, refuse: _Refuse) -> None:
    from packaging.requirements import Requirement

    try:
        marker = Requirement(value).marker
        if marker is not None:
            marker.evaluate()  # some can be read and not be answered
    except (ValueError, RecursionError):
        refuse("dist", f"expected a requirement such as 'decord<=0.6.0', got {value!r}")


if TYPE_CHECKING:
    from typing import Protocol

    class _Refuse(Protocol):
        def __call__(self, field: str, problem: str) -> NoReturn: ...
