"""What a mode and a grade mean for those who start programs and advise: asked in one place."""

from __future__ import annotations

from contextlib import suppress

from cudaguard import config
from cudaguard.core.permit import permit_for
from cudaguard.errors import ConfigError
from cudaguard.model import GRADES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudaguard.config import Mode
    from cudaguard.model import Rule

INSTALL = "cudaguard.install()"
_, OPT_IN, REPORT = GRADES


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
