"""What a mode and a grade mean for those who start programs and advise: asked in one place."""

from __future__ import annotations

from cudaguard import config
from cudaguard.core.permit import REPAIRING
from cudaguard.errors import ConfigError
from cudaguard.model import GRADES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudaguard.config import Mode
    from cudaguard.model import Rule

INSTALL = "cudaguard.install()"
_, OPT_IN, REPORT = GRADES


def is_on(mode: str | None) -> bool:
    """Return True if a mode, where one is asked for, puts the guard up."""
    return mode not in (None, "off")


def is_strict(mode: str) -> bool:
    """Return True if what could not be repaired is an error in this mode."""
    return mode == "strict"


def repairs_by(settings: config.Settings) -> bool:
    """Return True if settings alone have programs repaired."""
    return settings.mode in REPAIRING


def starts_by(settings: config.Settings) -> bool:
    """Return True if settings alone put the guard up in programs."""
    return is_on(settings.mode)


def mode_for_child(asked: str | None, environ: Mapping[str, str]) -> Mode:
    """Return the mode of a program that is to be started under the guard.

    Args:
        asked: The mode of the command line, or None.
        environ: The environment of the program; ``CUDAGUARD=off`` in it beats `asked`.

    Raises:
        ConfigError: An unknown mode.
    """
    said, _ = config.read_environment(environ)
    chosen = None if asked is None else config.parse_mode(asked, "--mode")
    if said.mode == "off":
        return "off"
    if chosen is None:
        chosen = said.mode
    if chosen is None and said.config:
        try:
            chosen = config.read_file(said.config).mode
        except (ConfigError, ImportError):  # the guard of the program tells of it
            chosen = None
    return chosen or "fix"


def repaired_by(rules: Iterable[Rule], mode: str) -> frozenset[str]:
    """Return the ids of those rules in force whose fault the guard repairs in a mode."""
    if mode not in REPAIRING:
        return frozenset()
    return frozenset(rule.id for rule in rules if rule.grade != REPORT)


def install_call(rule: Rule) -> str:
    """Return the call that has the guard repair the fault of a rule; empty if it cannot."""
    if rule.grade == REPORT:
        return ""
    return f'cudaguard.install(enable=["{rule.id}"])' if rule.grade == OPT_IN else INSTALL
