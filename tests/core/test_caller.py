"""Whose import is it: the program's, or the guard's own?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import cudaguard
from cudaguard.core import prerequisites
from cudaguard.hooks.caller import importing

OURS = str(Path(cudaguard.__file__).parent / "x.py")


def call_from(module, function):
    """Call a function from a frame of a module of ours."""
    names = {"__name__": f"cudaguard.{module}"}
    exec(compile("def call(function): return function()", OURS, "exec"), names)
    return names["call"](function)


@pytest.mark.parametrize(
    ("module", "is_ours"),
    [
        ("system.facts", True), ("elf.reader", True), ("core.dlopen", False),
        ("core.loader", False), ("features.cuda_graphs.functions", False), ("tools.main", False),
    ],
)  # fmt: skip
def test_what_fact_finders_call_is_for_the_guard_and_what_hooks_call_is_not(module, is_ours):
    assert ("cudaguard" in call_from(module, lambda: importing())) is is_ours


def test_prerequisites_are_imported_for_the_program(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("needed_first", "used_by_us"):
        text = "from cudaguard.hooks.caller import importing\nfound = importing()\n"
        (tmp_path / f"{name}.py").write_text(text)
    prerequisites.import_first("needed_first")
    exec(compile("import used_by_us", OURS, "exec"), {"__name__": "cudaguard.core.x"})
    assert "cudaguard" not in sys.modules["needed_first"].found
    assert "cudaguard" in sys.modules["used_by_us"].found
