"""The rules in force, indexed by the modules they watch and by what they do.

A registry is a value: it is built once per change of rules or switches and published by one
assignment, so that a finder in another thread sees either the old one or the new one. It holds of
each rule what is needed to know that it is concerned; the rule itself is made when it is.
"""

from __future__ import annotations

import sys

from cudaguard.core.table import table
from cudaguard.files import os
from cudaguard.model import TYPE_CHECKING, Record
from cudaguard.system import has_kernel_driver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard import config
    from cudaguard.core.rule import Rule

    Sourced = tuple["RuleEntry", str]  # a rule and where it comes from

BUILT_IN = "built-in"
_MACHINE = os.uname().machine if hasattr(os, "uname") else ""
_USUAL = {"platform": sys.platform}  # what most rules ask


class RuleEntry:
    """A rule that may not have been made yet."""

    __slots__ = ("_rule", "_when", "asked", "does", "grade", "id", "needs", "watch")

    def __init__(
        self,
        id: str,  # as of the rule, like `grade`, `watch` and `needs`
        rule: Rule | str,  # the rule, or where the built-in one is found
        grade: str,
        watch: tuple[str, ...],
        needs: tuple[str, ...],
        does: tuple[tuple[str, object], ...],  # pairs of (verb, its value) of the rule's actions
        # those conditions that are cheap to ask; ``driver``: an NVIDIA driver; ``more``: there are
        # others
        when: Mapping[str, Any],
    ) -> None:
        self.id, self.grade, self.watch, self.needs, self.does = id, grade, watch, needs, does
        self._rule, self._when = rule, when
        self.asked: tuple[str, tuple[str, ...]] = "", ()  # a repair, and the verbs that it does

    def applies(self) -> bool | None:
        """Return True if all conditions of the rule hold here; None if others are to be asked."""
        is_so = self._when == _USUAL or holds(self._when, sys.platform, _MACHINE, os.environ)
        return None if is_so and "more" in self._when else is_so

    @property
    def asks(self) -> bool:
        """True if it asks for something at an import, and is not told at a call only."""
        return bool(self.does or self.needs or self.grade == "report")

    @property
    def is_for_windows(self) -> bool:
        """True if the rule is for Windows alone."""
        return bool(self._when.get("platform") == "win32")

    @property
    def rule(self) -> Rule:
        """The rule."""
        rule = self._rule  # read once: another thread may just be making it
        if isinstance(rule, str):
            rule = self._rule = table.rule(self.id, rule)
        return rule


def entry_of(rule: Rule) -> RuleEntry:
    """Return the entry of a rule that was made by the program or its user."""
    does = tuple(
        (verb, action[verb])
        for action in rule.actions
        for verb in action
        if verb in table.index.VERBS
    )
    return RuleEntry(rule.id, rule, rule.grade, rule.watch, rule.needs, does, {"more": True})


def holds(when: Mapping[str, Any], platform: str, machine: str, environ: Mapping[str, str]) -> bool:
    """Return True if those conditions hold that concern nothing that is installed."""
    for key, wanted in when.items():
        if key in ("platform", "machine"):
            actual = platform if key == "platform" else machine
            if actual != wanted and (isinstance(wanted, str) or actual not in wanted):
                return False
        elif key == "env":
            for variable, asked in wanted.items():
                value = environ.get(variable, "")
                if (bool(value) if isinstance(asked, bool) else value) != asked:
                    return False
    return "driver" not in when or has_kernel_driver()


def built_in(platform: str = sys.platform) -> list[tuple[RuleEntry, str]]:
    """Return the entries of the built-in rules, with their origin; Windows' own only there."""
    entries = (RuleEntry(*row) for row in table.index.RULES)
    return [(e, BUILT_IN) for e in entries if platform == "win32" or not e.is_for_windows]


class Registry:
    """Rules that are switched on, and orders that are kept at no cost.

    An opt-in rule that is not enabled is off, with one exception: where the program itself imports
    what the rule needs a line later, the two change places (`opt_in_orders`). Of `entries` (entry,
    origin) a later one replaces an earlier one of the same id.
    """

    def __init__(
        self, entries: Iterable[tuple[RuleEntry, str]], switches: Mapping[str, bool]
    ) -> None:
        chosen = {entry.id: (entry, origin) for entry, origin in entries}
        self.entries = tuple(
            entry for entry, _ in chosen.values() if switches.get(entry.id, entry.grade != "opt-in")
        )
        # Detectors that were disabled: what they find is neither kept nor told.
        self.silenced = frozenset(id for id, is_on in switches.items() if not is_on) - chosen.keys()
        self.origins: dict[str, str] = {id: origin for id, (_, origin) in chosen.items()}
        self.by_module = _by_module(self.entries)
        self.opt_in_orders = _by_module(
            entry
            for entry, _ in chosen.values()
            if entry.grade == "opt-in" and entry.id not in switches
            if entry.needs and not any(need in table.index.PREREQUISITES for need in entry.needs)
        )

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force."""
        return tuple(entry.rule for entry in self.entries)

    def rules_of(self, name: str) -> tuple[Rule, ...]:
        """Return the rules that watch a module."""
        return tuple(entry.rule for entry in self.by_module.get(name, ()))

    def rule(self, id: str) -> Rule | None:
        """Return a rule that is in force, None if it is not."""
        return next((entry.rule for entry in self.entries if entry.id == id), None)

    def is_users(self, rule: Rule) -> bool:
        """Return True if the rule came from the user, a file or a plug-in, and not from us."""
        return self.origins.get(rule.id) != BUILT_IN


def _by_module(entries: Iterable[RuleEntry]) -> dict[str, tuple[RuleEntry, ...]]:
    found: dict[str, tuple[RuleEntry, ...]] = {}
    for entry in entries:
        for name in entry.watch:
            found[name] = (*found.get(name, ()), entry)
    return found


# --- What is asked for, and what is in force: see `cudaguard.core.settings` -----------------------


class Layer(Record):
    """Settings of one call of `install` or `guard`."""

    mode: str | None = None  # a mode, or None for "whatever the environment or the file say"
    switches: Mapping[str, bool] = {}  # rule id -> enabled or disabled
    rules: tuple[Sourced, ...] = ()  # further rules with their origin
    file: config.Settings | None = None  # the configuration file named by the call
    # ``none``, ``auto`` or a device; None for "whatever the environment or file say"
    context: str | None = None
    alone: bool = False  # activated by the environment variable alone, not by a call
    children: bool = False  # are the Python processes that this one starts to be guarded as well?

    def over(self, older: Layer) -> Layer:
        """Return this layer on top of an older one, as one."""
        return Layer(
            self.mode or older.mode,
            {**older.switches, **self.switches},
            (*older.rules, *self.rules),
            self.file or older.file,
            self.context or older.context,
            children=self.children or older.children,
        )


class InForce(Record):
    """The outcome: what the engine is to be configured with."""

    mode: str
    switches: Mapping[str, bool]
    rules: tuple[Sourced, ...]
    journal: str
    plugins: bool
    context: str  # ``none``, ``auto`` or a device
    watch: tuple[str, ...]  # further modules; ``*``: every top-level one
    problems: tuple[str, ...]  # what could not be used, in words
