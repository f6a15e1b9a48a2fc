"""What a message, an error or an id means: ``explain``."""

from __future__ import annotations

from cudaguard import api  # noqa: F401  # hands the features to the core
from cudaguard.api import active_rules
from cudaguard.core import id_messages as known
from cudaguard.core.lifecycle import activation
from cudaguard.core.near import same_id
from cudaguard.core.passing_errors import (
    explain_error,
    explain_text,
    in_this_process,
    known_errors,
)
from cudaguard.core.table import table
from cudaguard.tools.doctor.checks import CHECKS, check_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

# --- The built-in knowledge as a whole, for commands; importing it makes every rule ---------------

RULES = table.rules()
DETECTORS = {id: title for id, (title, _) in table.index.IDS.items()}

_LONGEST_ID = 200  # characters


def explain(about: BaseException | str) -> Finding | None:
    """Return what an error, its text, or the id of a rule or finding means; None if not known.

    Args:
        about: An exception, with those that led to it; the text of a message, a whole log included;
            or an id, as in ``CG001``.
    """
    is_guarded = activation.core.reporter.is_up
    if isinstance(about, BaseException):
        finding = explain_error(about, is_guarded=is_guarded)
        return None if finding is None else in_this_process(finding)
    if not isinstance(about, str):
        raise TypeError(f"explain() takes an error, a text or an id, not {type(about).__name__}")
    id = about.strip()
    if len(id) <= _LONGEST_ID:
        id = same_id(id, ids())
        if id:
            return _explain_id(id)
    return explain_text(about, is_guarded=is_guarded)


def ids() -> tuple[str, ...]:
    """Return every id that can be explained."""
    rules = (rule.id for rule in (*table.rules(), *active_rules()))
    errors = (one.id for one in known_errors())
    return tuple(sorted({*rules, *errors, *CHECKS, *table.index.IDS}))


def kind_of(id: str) -> str:
    """Return what a known id is the id of, with its article."""
    if id in CHECKS:
        return "a check of `cudaguard doctor`"
    return "a finding" if id in table.index.IDS else "a rule"


def _explain_id(id: str) -> Finding | None:
    rules = {rule.id: rule for rule in (*table.rules(), *active_rules())}
    if id in rules:
        return known.about_rule(rules[id])
    for one in known_errors():
        if one.id == id:
            return one.about()
    if id in CHECKS:
        check = check_of(id)
        return known.about_check(id, check.title, check.about)
    title, _ = table.index.IDS.get(id, ("", ""))
    return known.about_detector(id, title, table.about(id)) if title else None
