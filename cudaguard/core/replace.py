"""Attributes of modules and classes that are replaced for rules, and put back."""

from __future__ import annotations

from functools import wraps

from cudaguard.core.reports import passes_through
from cudaguard.core.rule import Permit, permit_for
from cudaguard.hooks.caller import hide_frame
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.core.registry import Registry
    from cudaguard.core.reports import Reporter
    from cudaguard.core.rule import Rule

_INHERITED = object()


def preceded(original: Any, before: Callable[..., Any]) -> Any:
    """Return a function that does something first; what the original raises is its own."""

    @wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        before(args, kwargs)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return called


class ReplacedPlace:
    """An attribute that is replaced for rules; replaced again when its owner is."""

    def __init__(self, name: str, owner: Any, attribute: str) -> None:
        self.name, self._owner, self._attribute = name, owner, attribute
        self.undone: Callable[[], object] = lambda: None  # called as it is put back
        self._original = vars(owner).get(attribute, _INHERITED)
        self._ours: Any = None
        # The rule that has it replaced comes first. A permit is switched when the mode is.
        self.users: dict[Rule, Permit] = {}

    def fill(self, ours: Any) -> None:
        """Replace the attribute."""
        self._ours = ours
        setattr(self._owner, self._attribute, ours)

    def is_filled(self, owner: Any) -> bool:
        """Return True if ours is there still, and on this owner, not on one that was replaced."""
        return owner is self._owner and vars(owner).get(self._attribute) is self._ours

    def undo(self) -> bool:
        """Put the original back; False if something else has been put there since."""
        self.undone()
        if not self.is_filled(self._owner):
            return False
        if self._original is _INHERITED:
            delattr(self._owner, self._attribute)
        else:
            setattr(self._owner, self._attribute, self._original)
        return True


class FunctionStandIn:
    """Stands for a function that is not written in Python: looks like it, and is never a method."""

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        self.__wrapped__ = original  # inspect.signature follows it
        self.__doc__, self.__module__ = original.__doc__, getattr(original, "__module__", "")
        self._call = call

    @property  # type: ignore[misc]  # that of `object` can be set
    def __class__(self) -> Any:
        return type(self.__wrapped__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what is to be called instead."""
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "__wrapped__"), name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> str:
        return str(self.__wrapped__.__qualname__)


class Replacements:
    """All places where something is replaced; one per process."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._places: dict[str, ReplacedPlace] = {}

    @property
    def places(self) -> tuple[str, ...]:
        """Replaced attributes, in words."""
        return tuple(self._places.copy())  # in one step, also without the GIL

    def put(
        self,
        request: Any,
        name: str,
        owner: Any,
        attribute: str,
        make: Callable[[ReplacedPlace, Permit], Any],
    ) -> bool:
        """Replace something for a rule, or let the rule use what is replaced there.

        What the request (see `cudaguard.core.repairs`) reports from now on concerns a call, and may
        be raised from it; its permit is the one that is switched. The owner of a module that was
        loaded again is a new one. `make` returns the new attribute, and can raise.
        Return True if it was replaced now.
        """
        rule: Rule = request.rule
        place = self._places.get(name)
        request.can_raise = True
        if place is not None:
            if place.is_filled(owner):
                place.users.setdefault(rule, Permit()).switch(self._permit_now(rule))
                return False
            self._undo(place)  # the module was loaded anew
        place = ReplacedPlace(name, owner, attribute)
        request.permit = place.users[rule] = self._permit_now(rule)
        place.fill(make(place, request.permit))
        self._places[name] = place
        self._reporter.put_back(passes_through(name))
        return True

    def _permit_now(self, rule: Rule) -> Permit:
        return permit_for(self._reporter.mode, rule.grade)

    def follow(self, registry: Registry) -> None:
        """Switch the permits as mode and rules are now; put back what no rule wants any more."""
        for place in list(self._places.values()):
            first = next(iter(place.users))
            for rule, permit in list(place.users.items()):
                is_kept = registry.rule(rule.id) == rule
                permit.switch(self._permit_now(rule) if is_kept else None)
                if not is_kept:
                    del place.users[rule]
            # If the rule that asked for it is gone, the next rule replaces it again.
            if first not in place.users:
                self._undo(place)

    def _undo(self, place: ReplacedPlace) -> None:
        self._places.pop(place.name, None)
        for permit in place.users.values():
            permit.switch(None)
        if not place.undo():
            self._reporter.changed(passes_through(place.name), stays=True)
