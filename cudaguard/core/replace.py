"""Attributes of modules and classes that are replaced for rules, and put back."""

from __future__ import annotations

from cudaguard.core.permit import Permit, permit_for
from cudaguard.core.reports import passes_through

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.core.registry import Registry
    from cudaguard.core.reports import Reporter
    from cudaguard.model import Rule

_INHERITED = object()


class Replaced:
    """An attribute that was replaced.

    Args:
        owner: Whose attribute: a class or a module.
        name: The attribute.
        ours: What it is to be.
    """

    def __init__(self, owner: Any, name: str, ours: Any) -> None:
        self._owner = owner
        self._name = name
        self._ours = ours
        self._original = vars(owner).get(name, _INHERITED)
        setattr(owner, name, ours)

    def is_in_place(self, owner: Any) -> bool:
        """Return True if it is there still, and on this owner, not on one that was replaced."""
        return owner is self._owner and vars(owner).get(self._name) is self._ours

    def undo(self) -> bool:
        """Put the original back; False if something else has been put there since."""
        if not self.is_in_place(self._owner):
            return False
        if self._original is _INHERITED:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._original)
        return True


class ReplacedPlace:
    """What rules want at one place; made anew when the place is.

    Args:
        name: The place, in words.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.replaced: Replaced | None = None
        # The rule that has it replaced comes first.
        self.users: list[tuple[Rule, Permit]] = []

    def permit_of(self, rule: Rule) -> Permit:
        """Return the permit of a rule here; it is switched from then on when the mode is."""
        for user, permit in self.users:
            if user == rule:
                return permit
        self.users.append((rule, Permit()))
        return self.users[-1][1]


class Replacements:
    """All places where something is replaced; one per process."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._places: dict[str, ReplacedPlace] = {}

    @property
    def places(self) -> tuple[str, ...]:
        """Where something is replaced, in words."""
        return tuple(self._places.copy())  # in one step, also without the GIL

    def put(
        self,
        name: str,
        rule: Rule,
        owner: Any,
        make: Callable[[ReplacedPlace, Permit], Replaced],
    ) -> bool:
        """Replace something for a rule, or let the rule use what is replaced there.

        Args:
            name: The place, in words.
            rule: The rule.
            owner: Whose attribute it is: that of a module that was loaded anew is another one.
            make: Is given the place and the rule's permit, and replaces it.

        Returns:
            True if it was replaced now.

        Raises:
            Exception: What `make` raises.
        """
        place = self._places.get(name)
        if place is not None and place.replaced is not None:
            if place.replaced.is_in_place(owner):
                place.permit_of(rule).switch(self._permit_now(rule))
                return False
            self._undo(place)  # the module was loaded anew
        place = ReplacedPlace(name)
        permit = place.permit_of(rule)
        permit.switch(self._permit_now(rule))
        place.replaced = make(place, permit)
        self._places[name] = place
        self._reporter.put_back(passes_through(name))
        return True

    def _permit_now(self, rule: Rule) -> Permit:
        return permit_for(self._reporter.mode, rule.grade)

    def follow(self, registry: Registry) -> None:
        """Switch the permits as mode and rules are now; put back what no rule wants any more."""
        for place in list(self._places.values()):
            kept = []
            for rule, permit in place.users:
                is_kept = registry.rule(rule.id) == rule
                permit.switch(self._permit_now(rule) if is_kept else None)
                if is_kept:
                    kept.append((rule, permit))
            # If the rule that asked for it is gone, the next rule replaces it again.
            is_served = bool(kept) and place.users[:1] == kept[:1]
            place.users[:] = kept
            if not is_served:
                self._undo(place)

    def _undo(self, place: ReplacedPlace) -> None:
        self._places.pop(place.name, None)
        for _, permit in place.users:
            permit.switch(None)
        if place.replaced is not None and not place.replaced.undo():
            self._reporter.changed(passes_through(place.name), stays=True)
