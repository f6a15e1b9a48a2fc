"""What may be done in a mode, for a rule of a grade: the one place where that is asked."""

from __future__ import annotations

REPAIRING = ("fix", "strict")  # modes


class Permit:
    """What a repair may do: one object, switched when mode or rules change, read at every call.

    Args:
        acts: May it change anything?
        looks: May it look? False once its rule is not in force any more.
        tells: Is what it finds told? Otherwise it is only recorded.
    """

    __slots__ = ("acts", "looks", "tells")

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
