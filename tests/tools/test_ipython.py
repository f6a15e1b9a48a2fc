"""The words of ``%load_ext cudaguard``."""

from __future__ import annotations

import cudaguard
from cudaguard.tools.ipython import _START_AGAIN, loaded


def test_ipython_finds_the_extension_by_its_names():
    for name in ("load_ipython_extension", "unload_ipython_extension"):
        assert callable(getattr(cudaguard, name))
        assert name not in cudaguard.__all__


def test_modules_that_missed_nothing_need_no_new_start():
    assert loaded("fix", {"torch": []}, []).splitlines()[1:] == ["  no restart needed for torch"]


def test_all_parts_in_order():
    text = loaded("warn", {"a": ["R1, first", "R2, second"], "b": []}, ["names hidden"])
    assert text.splitlines() == [
        "cudaguard is on in this session, mode warn. Imported before it: a, b.",
        "  too late for a: R1, first",
        "  too late for a: R2, second",
        "  repaired afterwards: names hidden",
        "  no restart needed for b",
        *_START_AGAIN.splitlines(),
    ]


def test_magic_prints_a_plain_list(child):
    """In a process of its own: others have left their changes here."""
    done = child.python("from cudaguard.tools.ipython import show_status; show_status('')")
    assert done.stdout == "cudaguard: mode off, 0 rules in force\n"
