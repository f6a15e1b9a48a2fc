"""Replace an attribute of a module or class, and put it back."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INHERITED = object()


class Replaced:
    """An attribute that was replaced.

    Args:
        owner: Whose attribute: a class or a module.
        name: The attribute.
        ours: What it is to be.
        switch: Tells `ours` whether it is to do anything.
    """

    def __init__(self, owner: Any, name: str, ours: Any, switch: Switch) -> None:
        self._owner = owner
        self._name = name
        self._ours = ours
        self._switch = switch
        self._original = vars(owner).get(name, _INHERITED)
        setattr(owner, name, ours)

    def is_in_place(self, owner: Any) -> bool:
        """Is it there still, and is that the owner, rather than one that was made anew?"""
        return owner is self._owner and vars(owner).get(self._name) is self._ours

    def undo(self) -> bool:
        """Put the original back; False if something else has been put there since."""
        self._switch.is_on = False
        if not self.is_in_place(self._owner):
            return False
        if self._original is _INHERITED:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._original)
        return True


class Switch:
    """Whether a replacement does anything; on until it is put back."""

    __slots__ = ("is_on",)

    def __init__(self) -> None:
        self.is_on = True
