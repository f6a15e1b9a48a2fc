"""The words of ``%load_ext cudaguard``."""

from __future__ import annotations

import cudaguard


def test_ipython_finds_the_extension_by_its_names():
    for name in ("load_ipython_extension", "unload_ipython_extension"):
        assert callable(getattr(cudaguard, name))
        assert name not in cudaguard.__all__


def test_magic_prints_a_plain_list(child):
    """In a process of its own: others have left their changes here."""
    done = child.python("from cudaguard.tools.ipython import show_status; show_status('')")
    assert done.stdout == "cudaguard: mode off, 0 rules in force\n"
