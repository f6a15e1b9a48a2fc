"""The wording of what an id means."""

from __future__ import annotations

import sys

from cudaguard.files import os
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Rule


def about_rule(rule: Rule) -> Finding:
    """Return what a rule is about."""
    seen = f"reproduced {rule.verified}" if rule.verified else "reported, not reproduced"
    fixed = (f"fixed in {rule.fixed_in}",) if rule.fixed_in else ()
    if rule.grade == "opt-in":
        remedy = f"switch it on with install(enable=[{rule.id!r}]) or CUDAGUARD_RULES=+{rule.id}"
    else:
        switch = f"install(disable=[{rule.id!r}]) or CUDAGUARD_RULES=-{rule.id}"
        remedy = f"silence it: {switch}"
        if rule.grade == "automatic":
            remedy = f"start the program with CUDAGUARD=fix; or switch the repair off: {switch}"
    return Finding(
        rule.id,
        f"{rule.title}." if rule.title else f"A rule about {', '.join(rule.watch)}.",
        rule=rule.id,
        severity="info",
        evidence=(f"grade {rule.grade}; {seen}", *fixed),
        consequence=rule.why,
        remedy=remedy,
        links=rule.links,
    )


def about_detector(id: str, title: str, about: tuple[str, str, str]) -> Finding:
    """Return what a detector is about.

    Args:
        id: Its id.
        title: Of what it finds.
        about: What follows from it, what to do, and the page.
    """
    consequence, remedy, page = about
    off = f"silence it: install(disable=[{id!r}]) or CUDAGUARD_RULES=-{id}"
    return Finding(
        id,
        f"{title[:1].upper()}{title[1:]}.",
        severity="info",
        consequence=consequence,
        remedy=f"{remedy}; or {off}" if remedy else off,
        links=tuple(filter(None, [_where(page)])),
    )


def _where(page: str) -> str:
    """Return the path of a page of ours as it is installed; relative in a checkout."""
    above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if not page or os.path.isfile(os.path.join(above, "docs", page)):
        return f"docs/{page}" if page else ""
    schemes = (above, sys.prefix, getattr(sys.modules.get("site"), "USER_BASE", None))
    pages = (os.path.join(top, "share", "doc", "cudaguard", page) for top in schemes if top)
    return next(filter(os.path.isfile, pages), "")


def about_check(id: str, title: str, about: str) -> Finding:
    """Return what a check of the doctor is about."""
    return Finding(
        id,
        f"A check of cudaguard doctor: {title}.",
        severity="info",
        evidence=(about,),
        remedy="run the check on this machine",
        command=f"cudaguard doctor --only {id} -v",
    )
