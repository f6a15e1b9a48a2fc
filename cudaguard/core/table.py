"""The features, as the core knows them.

The core imports no feature. Whoever starts it (`cudaguard.api`) hands it the index of all features,
`cudaguard.features._index`, which is data, and generated: names of objects that are imported when
they are used.
"""

from __future__ import annotations

import sys

from cudaguard import errors
from cudaguard.model import GRADES, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from cudaguard.core.findings import Kind
    from cudaguard.core.rule import Rule
    from cudaguard.errors import CudaGuardWarning

RESERVED_PREFIX = "CG"  # of the ids that are ours


class Parameter(NamedTuple):
    """One parameter of a verb."""

    name: str  # its key in the table
    kind: str  # what values it takes: a key of `cudaguard.core.rule_check.KINDS`
    example: object  # a value that fits; proposed where the parameter is missing
    required: bool = True


class Verb(NamedTuple):
    """One verb, as a feature declares it."""

    name: str  # its key in the table of an action: verb_object
    kind: str  # what values it takes, as of a parameter
    example: object
    meaning: str  # what the guard does, in one sentence
    # Moment (see `cudaguard.core.repairs`) -> function of the feature, as in ``repair:preload``.
    does: Mapping[str, str]
    parameters: tuple[Parameter, ...] = ()  # the further keys
    grades: tuple[str, ...] = GRADES  # that a rule with this verb may have


def github(places: str) -> tuple[str, ...]:
    """Return links to issues and pull requests, as in ``NVIDIA/DALI/issues/5423``, by spaces."""
    return tuple(f"https://github.com/{place}" for place in places.split())


class FeatureTable:
    """Table of what features have for the core; entries are resolved on first use.

    In the index, RULES have id, entry of the rules of their module, grade, watched modules, needs,
    (verb, value) of the actions, and conditions that are cheap to ask. VERBS, and what built-in
    rules alone ask for, have an entry for each moment, in the order of doing. CATEGORIES are the
    classes of the warnings of verbs, TABLES the entries of their declarations. DETECTORS have an
    entry and the events they listen to, FINDINGS are modules with kinds of findings, CHECKS those
    of doctor. BUILT_WITHOUT has packages of INITIALIZERS, each with a file of its and what that
    says where they do nothing with CUDA.
    """

    def __init__(self) -> None:
        self.index: Any = None  # handed over before anything is asked
        self._found: dict[str, Any] = {}

    def use(self, index: Any) -> None:
        """Take over the index of the features."""
        self.index, self._found = index, {}
        self.initializers = frozenset(index.INITIALIZERS)

    def resolve(self, entry: str) -> Any:
        """Return the object that an entry ``module:name`` stands for, and import its module."""
        if (found := self._found.get(entry)) is None:
            module, _, name = entry.partition(":")
            __import__(module)
            found = self._found[entry] = getattr(sys.modules[module], name)
        return found

    def rule(self, id: str, entry: str) -> Rule:
        """Return a built-in rule."""
        found: Rule = next(rule for rule in self.resolve(entry) if rule.id == id)
        return found

    @property
    def rule_ids(self) -> frozenset[str]:
        """The ids of all built-in rules."""
        return frozenset(id for id, *_ in self.index.RULES)

    def rules(self) -> tuple[Rule, ...]:
        """Return all built-in rules."""
        return tuple(self.rule(id, entry) for id, entry, *_ in self.index.RULES)

    def kinds(self) -> Iterator[Kind]:
        """Yield all kinds of findings, but those of doctor's checks."""
        from cudaguard.core.findings import Kind

        for module in self.index.FINDINGS:
            __import__(module)
            for found in vars(sys.modules[module]).values():
                if isinstance(found, Kind) and found.id in self.index.IDS:
                    yield found

    def kind(self, id: str) -> Kind | None:
        """Return the kind of findings that has an id; None if none has."""
        return next((kind for kind in self.kinds() if kind.id == id), None)

    def moments(self, moment: str, verbs: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the entries of what is done at a moment, each with those of the verbs it does."""
        found: dict[str, tuple[str, ...]] = {}
        verbs = frozenset(verbs)
        for verb, entries in self.index.VERBS.items():
            if verb in verbs and moment in entries:
                found[entries[moment]] = (*found.get(entries[moment], ()), verb)
        return found

    def category_of(self, id: str, verb: str = "") -> type[CudaGuardWarning]:
        """Return the class of warnings about findings with an id; of a rule, by what it does."""
        name = self.index.IDS.get(id) or self.index.CATEGORIES.get(verb, "ImportOrderWarning")
        found: type[CudaGuardWarning] = getattr(errors, name)
        return found


table = FeatureTable()
