"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

# What built-in rules alone ask for.
REPAIRS = {
    "load_newest_runtime": dict.fromkeys(("before", "first", "late"), "repair:load_newest"),
}

CATEGORY = "ImportOrderWarning"
