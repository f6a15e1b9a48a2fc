"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import SWITCH, Verb

VERBS = (
    Verb(
        "prepare_builds",
        SWITCH,
        True,
        "Where no GPU is visible, have torch build extensions for all that it supports.",
        {"after": "repair:put_up"},
    ),
)
# What a built-in rule alone asks for.
REPAIRS = {"break_stale_locks": {"after": "repair:put_up"}}

CATEGORY = "ExtensionWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG885": ("a build that has ended left its lock", "ExtensionWarning"),
    "CG886": ("a build waits for a lock", "ExtensionWarning"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG885": (
        "every later build of that extension waits without a limit.",
        "delete the lock file that the message names, unless cudaguard removed it",
        "howto/builds.md",
    ),
}
