"""What a message, an error or an id means: ``explain``."""

from __future__ import annotations

from cudaguard import api  # noqa: F401  # hands the features to the core
from cudaguard.core.findings import Finding, of_rule, switch_off
from cudaguard.core.lifecycle import activation
from cudaguard.core.passing_errors import explain_error, explain_text, in_this_process, known_errors
from cudaguard.core.rule_check import toml_text
from cudaguard.core.table import table
from cudaguard.files.text import same_id
from cudaguard.tools.doctor.checks import CHECKS, all_rules, check_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.rule import Rule

# --- The built-in knowledge as a whole, for commands; importing it makes every rule ---------------

RULES = table.rules()

_LONGEST_ID = 200  # characters


def explain(about: BaseException | str) -> Finding | None:
    """Return what an error, its text, or the id of a rule or finding means; None if not known.

    Args:
        about: An exception, with those that led to it; the text of a message, a whole log included;
            an id, as in ``CG001``; or the address of a report that an entry links.
    """
    is_guarded = activation.is_up
    if isinstance(about, BaseException):
        finding = explain_error(about, is_guarded=is_guarded)
        return None if finding is None else in_this_process(finding)[0] or finding
    if not isinstance(about, str):
        raise TypeError(f"explain() takes an error, a text or an id, not {type(about).__name__}")
    id = about.strip()
    if len(id) <= _LONGEST_ID:
        linked = {link: one.id for one in known_errors() for link in one.links}
        id = same_id(id, ids()) or linked.get(id, "")
        if id:
            return _explain_id(id)
    return explain_text(about.replace("%20", " "), is_guarded=is_guarded)  # out of an address


def ids() -> tuple[str, ...]:
    """Return every id that can be explained."""
    errors = (one.id for one in known_errors())
    return tuple(sorted({*all_rules(), *errors, *CHECKS, *table.index.IDS}))


def _explain_id(id: str) -> Finding | None:
    rule = all_rules().get(id)
    if rule is not None:
        return _about_rule(rule)
    if id in CHECKS:
        check = check_of(id)
        return Finding(
            id,
            f"A check of cudaguard doctor: {check.title}.",
            severity="info",
            evidence=(check.about,),
            remedy="run the check on this machine",
            command=f"cudaguard doctor --only {id} -v",
        )
    known = next((one for one in known_errors() if one.id == id), None) or table.kind(id)
    return None if known is None else known.about()


def _about_rule(rule: Rule) -> Finding:
    seen = f"reproduced {rule.verified}" if rule.verified else "reported, not reproduced"
    off = switch_off(rule.id)
    remedies = {
        "opt-in": f"switch it on with install(enable=[{rule.id!r}]) or CUDAGUARD_RULES=+{rule.id}",
        "automatic": f"start the program with CUDAGUARD=fix; or switch it off: {off}",
    }
    return of_rule(
        rule,
        f"{rule.title}." if rule.title else f"A rule about {', '.join(rule.watch)}.",
        f"grade {rule.grade}; {seen}",
        f"fixed in {rule.fixed_in}" if rule.fixed_in else "",
        f"watches {', '.join(rule.watch)}",
        f"applies to {', '.join(rule.dist)}" if rule.dist else "",
        f"applies when {toml_text(rule.when)}" if rule.when else "",
        f"needs {', '.join(rule.needs)} first" if rule.needs else "",
        *(f"does {toml_text(action)}" for action in rule.actions),
        severity="info",
        remedy=remedies.get(rule.grade, f"silence it: {off}"),
    )
