"""Rules written by a user as TOML tables (``[[rules]]``)."""

from __future__ import annotations

from cudaguard.core.rule_check import check_rule
from cudaguard.errors import RuleError
from cudaguard.model import Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

REQUIRED = ("id", "watch", "why")


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
            if key not in Rule.__slots__:
                raise RuleError(
                    f"{where}: unknown key {key!r}; expected one of {', '.join(Rule.__slots__)}"
                )
        for key in REQUIRED:
            if key not in table:
                raise RuleError(f"{where}: the key {key!r} is missing")
        rules.append(check_rule(Rule(**table), where, known=known, is_toml=True))
    return tuple(rules)
