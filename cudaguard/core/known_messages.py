"""The wording of what a message or an id means."""

from __future__ import annotations

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from cudaguard.model import Rule

    class Known(Protocol):
        """A message that is known (see `cudaguard.core.known_errors`)."""

        @property
        def id(self) -> str:
            """Its id."""

        @property
        def what(self) -> str:
            """What is wrong."""

        @property
        def remedy(self) -> str:
            """What to do."""

        @property
        def consequence(self) -> str:
            """What follows."""

        @property
        def links(self) -> tuple[str, ...]:
            """Evidence."""


def explained(known: Known, groups: Sequence[str], text: str) -> Finding:
    """Return what a known message means.

    Args:
        known: What is known of it.
        groups: What its pattern has found, to be named in the texts.
        text: The message; its first line that is not empty is shown.
    """
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return Finding(
        known.id,
        known.what.format(*groups),
        severity="error",
        evidence=(line if len(line) <= 200 else f"{line[:197]}...",),
        consequence=known.consequence,
        remedy=known.remedy.format(*groups),
        links=known.links,
    )


def about_message(known: Known) -> Finding:
    """Return what a known message is about, without one."""
    nothing = ("the library", "", "")
    return Finding(
        known.id,
        known.what.format(*nothing),
        severity="info",
        consequence=known.consequence,
        remedy=known.remedy.format(*nothing),
        links=known.links,
    )


def about_rule(rule: Rule) -> Finding:
    """Return what a rule is about."""
    seen = f"reproduced {rule.verified}" if rule.verified else "reported, not reproduced"
    fixed = (f"fixed in {rule.fixed_in}",) if rule.fixed_in else ()
    if rule.grade == "opt-in":
        remedy = f"switch it on with install(enable=[{rule.id!r}]) or CUDAGUARD_RULES=+{rule.id}"
    else:
        switch = f"install(disable=[{rule.id!r}]) or CUDAGUARD_RULES=-{rule.id}"
        remedy = f"where it is not wanted, switch it off with {switch}"
        if rule.grade == "automatic":
            remedy = f"the guard repairs it, if it comes first: CUDAGUARD=fix; {remedy}"
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


def about_detector(id: str, title: str) -> Finding:
    """Return what a detector is about."""
    return Finding(
        id,
        f"A finding of the guard itself: {title}.",
        severity="info",
        remedy=f"switch it off with install(disable=[{id!r}]) or CUDAGUARD_RULES=-{id}",
    )


def about_check(id: str, title: str, about: str) -> Finding:
    """Return what a check of the doctor is about."""
    return Finding(
        id,
        f"A check of cudaguard doctor: {title}.",
        severity="info",
        evidence=(about,),
        remedy="see what it says here",
        command=f"cudaguard doctor --only {id} -v",
    )
