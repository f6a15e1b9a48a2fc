"""The ids of what the core itself tells, their titles, and the wording of what an id means."""

from __future__ import annotations

import sys

from cudaguard.files import os
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Rule

# Title and class of the warning; a rule's verb decides where there is none.
IDS = {
    "CG801": ("a module that a rule needs first could not be imported", "ImportOrderWarning"),
    "CG802": ("the guard was installed after a module was imported", ""),
    "CG804": ("rules ask for contradicting import orders", "ImportOrderWarning"),
    "CG805": ("a rule plug-in could not be used", "CudaGuardWarning"),
    "CG806": ("a setting could not be used", "CudaGuardWarning"),
    "CG807": ("the guard itself failed", "CudaGuardWarning"),
    "CG808": ("lazy import used after the guard block", "ImportOrderWarning"),
    "CG809": ("a repair is not supported on this platform", "SymbolScopeWarning"),
    "CG810": ("a prerequisite imports the module that it should precede", "ImportOrderWarning"),
    "CG811": ("a watched module was imported past the guard", "ImportOrderWarning"),
}
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG801": (
        "the module that needs it may crash, or give wrong results.",
        "install the module that the message names, or find out why its import fails",
        "explanation/how-it-works.md",
    ),
    "CG802": (
        "what the module did while it was imported cannot be undone.",
        "call cudaguard.install() on the first line of the program, or start it with CUDAGUARD=fix",
        "howto/activation.md",
    ),
    "CG804": (
        "cudaguard keeps none of these orders.",
        "switch one of these rules off, or give one of them a narrower condition",
        "reference/rules.md",
    ),
    "CG805": (
        "the plug-in's rules do not act.",
        "update the package that contains it, or report the message to its authors",
        "reference/rules.md",
    ),
    "CG806": (
        "cudaguard ignores this setting, or the whole file.",
        "correct the name or value in the message",
        "reference/configuration.md",
    ),
    "CG807": (
        "the program goes on unguarded at this point.",
        "report it with the whole message; CUDAGUARD=off switches the guard off",
        "explanation/how-it-works.md",
    ),
    "CG808": (
        "the first use imports the module after the block, unguarded.",
        "use the module inside the block, or call cudaguard.install() instead",
        "explanation/how-it-works.md",
    ),
    "CG809": (
        "the library is used unrepaired, with the fault that the rule describes.",
        "limit the rule to the platforms that support the repair, with when.platform",
        "explanation/how-it-works.md",
    ),
    "CG810": (
        "the module runs before its prerequisite is complete.",
        "switch the rule off if the program works",
        "reference/rules.md",
    ),
    "CG811": (
        "the rules for this module did not act.",
        "import it with an import statement or importlib, after cudaguard.install()",
        "explanation/how-it-works.md",
    ),
}


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
    """Return the path of a page of ours, in a checkout or as it is installed."""
    above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    schemes = (above, sys.prefix, getattr(sys.modules.get("site"), "USER_BASE", None))
    folders = (os.path.join(top, "share", "doc", "cudaguard") for top in schemes if top)
    pages = (os.path.join(top, page) for top in (os.path.join(above, "docs"), *folders) if page)
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
