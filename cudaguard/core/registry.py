"""The rules in force, indexed by the modules they watch.

A registry is a value: it is built once per change of rules or switches and published by one
assignment, so that a finder in another thread sees either the old one or the new one.
"""

from __future__ import annotations

from cudaguard.core.patterns import actions_of, values_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudaguard.model import Rule

BUILT_IN = "built-in"
# Verbs of actions that replace attributes of the watched module once it is imported.
REPLACING = (
    "break_stale_locks",
    "clone_outputs",
    "copy_held_outputs",
    "disable_cuda_graphs",
    "disable_fusers",
    "fix_array_interface",
    "normalize_argument",
    "prepare_builds",
    "record_compile_args",
)


class Registry:
    """Rules that are switched on, by watched module.

    Args:
        rules: Pairs of (rule, origin); a later rule replaces an earlier one of the same id.
        switches: Rule id -> True (enabled) or False (disabled).
    """

    __slots__ = (
        "asking",
        "by_module",
        "demoting",
        "origins",
        "providing",
        "replacing",
        "rules",
        "scoping",
        "shielding",
        "silenced",
    )

    def __init__(self, rules: Iterable[tuple[Rule, str]], switches: Mapping[str, bool]) -> None:
        chosen: dict[str, tuple[Rule, str]] = {}
        for rule, origin in rules:
            chosen[rule.id] = rule, origin
        self.rules: tuple[Rule, ...] = tuple(
            rule for rule, _ in chosen.values() if switches.get(rule.id, rule.grade != "opt-in")
        )
        # Detectors that were disabled: what they find is neither kept nor told.
        self.silenced = frozenset(id for id, is_on in switches.items() if not is_on) - chosen.keys()
        self.origins: dict[str, str] = {id: origin for id, (_, origin) in chosen.items()}
        by_module: dict[str, tuple[Rule, ...]] = {}
        for rule in self.rules:
            for name in rule.watch:
                by_module[name] = (*by_module.get(name, ()), rule)
        self.by_module = by_module
        # The others only have actions: nothing is to be decided at the import itself.
        self.asking = frozenset(
            name
            for rule in self.rules
            if rule.needs or rule.grade == "report"
            for name in rule.watch
        )
        # Few rules name a library, and they are asked at each global load: keep them apart.
        self.scoping = self._patterns("load_local")
        self.providing = self._patterns("provide_libraries")
        self.demoting = self._patterns("hide_symbols")
        self.shielding = self._patterns("load_deepbind")
        self.replacing = tuple(rule for rule in self.rules if actions_of(rule, *REPLACING))

    def _patterns(self, verb: str) -> tuple[tuple[str, Rule], ...]:
        """Return the patterns of one kind of action, each with its rule."""
        return tuple((found, rule) for rule in self.rules for found in values_of(rule, verb))

    def is_users(self, rule: Rule) -> bool:
        """Did the rule come from the user, a file or a plug-in rather than from us?"""
        return self.origins.get(rule.id) != BUILT_IN
