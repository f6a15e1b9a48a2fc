"""What may be done in a mode, for a rule of a grade: the one place where that is asked."""

from __future__ import annotations

from cudaguard.model import GRADES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudaguard.config import Mode
    from cudaguard.core.rule import Rule

REPAIRING = ("fix", "strict")  # modes
# The mode that the program asks for by an argument of install() or guard(); empty if none.
asked_for = ""
INSTALL = "cudaguard.install()"
_, OPT_IN, REPORT = GRADES


class Permit:
    """What a repair may do: one object, switched when mode or rules change, read at every call.

    It `acts` if it may change anything, `looks` as long as its rule is in force, and `tells` what
    it finds, which is otherwise only recorded.
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


# --- For those who start programs, and advise -----------------------------------------------------


def mode_for_child(asked: str | None, environ: Mapping[str, str]) -> Mode:
    """Return the mode of a program that is to be started under the guard.

    ``CUDAGUARD=off`` in its environment beats the mode `asked` on the command line.

    Raises:
        ConfigError: An unknown mode.
    """
    from contextlib import suppress

    from cudaguard import config
    from cudaguard.errors import ConfigError

    said, _ = config.read_environment(environ)
    chosen = None if asked is None else config.parse_mode(asked, "--mode")
    if said.mode == "off":
        return "off"
    chosen = chosen or said.mode
    if chosen is None and said.config:
        with suppress(ConfigError, ImportError):  # the guard of the program tells of it
            chosen = config.read_file(said.config).mode
    return chosen or "fix"


def repaired_by(rules: Iterable[Rule], mode: str) -> frozenset[str]:
    """Return the ids of those rules in force whose fault the guard repairs in a mode."""
    return frozenset(rule.id for rule in rules if permit_for(mode, rule.grade).acts)


def install_call(rule: Rule) -> str:
    """Return the call that has the guard repair the fault of a rule; empty if it cannot."""
    if rule.grade == REPORT:
        return ""
    return f'cudaguard.install(enable=["{rule.id}"])' if rule.grade == OPT_IN else INSTALL
