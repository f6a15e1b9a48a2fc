"""What a message, an error or an id means: ``explain``."""

from __future__ import annotations

from cudaguard.api import active_rules
from cudaguard.core import known_messages as known
from cudaguard.core.known_errors import ARCHITECTURES, FORK, KNOWN_ERRORS
from cudaguard.core.passing_errors import explain_error, explain_text
from cudaguard.features.catalog import DETECTORS, RULES
from cudaguard.tools.doctor.catalog import CHECKS, check_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding


def explain(about: BaseException | str) -> Finding | None:
    """Return what an error, its text, or the id of a rule or finding means; None if not known.

    Args:
        about: An exception, with those that led to it; the text of a message, a whole log included;
            or an id, as in ``CG001``.
    """
    if isinstance(about, BaseException):
        finding = explain_error(about)
        if finding is not None and finding.id in ARCHITECTURES:
            from cudaguard.features.gpu_architectures.known_errors import with_facts

            finding = with_facts(finding)
        return finding
    if not isinstance(about, str):
        raise TypeError(f"explain() takes an error, a text or an id, not {type(about).__name__}")
    id = about.strip()
    return _explain_id(id) or _explain_id(id.upper()) or explain_text(about)


def _explain_id(id: str) -> Finding | None:
    rules = {rule.id: rule for rule in (*RULES, *active_rules())}
    if id in rules:
        return known.about_rule(rules[id])
    for one in (*KNOWN_ERRORS, FORK):
        if one.id == id:
            return known.about_message(one)
    if id in CHECKS:
        check = check_of(id)
        return known.about_check(id, check.title, check.about)
    title = DETECTORS.get(id)
    return None if title is None else known.about_detector(id, title)
