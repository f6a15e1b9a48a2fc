"""`lazy import` as Python 3.15 executes it; for older ones see `test_lazy_filter`."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 15), reason="lazy import statements came with Python 3.15"
)

RULE = """
import sys
import cudaguard
RULE = cudaguard.Rule("LOCAL1", ("target", "absent", "unused"), "test", needs=("prereq",))
def order(): return [name for name in sys.modules if name in ("target", "prereq", "unused")]
"""
MODES = ["off", "observe", "warn", "fix", "strict"]


@pytest.fixture
def lazily(child):
    """Runs code beside two packages that a rule is about, and one that it needs."""
    for name in ("target", "unused", "prereq"):
        child.write(f"{name}.py", f"WHO = {name!r}\n")

    def lazily(code, **env):
        path = child.write("main.py", RULE + code)
        done = child.command(sys.executable, path, env=env)
        assert done.stderr == ""
        return done.stdout.splitlines()

    lazily.child = child

    return lazily


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "warn"])
def test_statement_imports_nothing_and_a_missing_package_fails_where_it_is_used(lazily, mode):
    code = f"""
cudaguard.install({mode!r}, rules=[RULE])
lazy import absent
lazy import unused
lazy import target
print(order())
try:
    absent.anything
except ModuleNotFoundError as error:
    print(error)
print(target.WHO, order())
"""
    first = ["prereq", "target"] if mode in ("fix", "strict") else ["target"]
    assert lazily(code) == ["[]", "No module named 'absent'", f"target {first}"]


def test_watched_module_is_imported_inside_a_block(lazily):
    code = """
with cudaguard.guard(rules=[RULE]):
    lazy import absent
    lazy import target
print(order(), sys.get_lazy_imports_filter())
lazy import unused
print(order())
"""
    assert lazily(code) == ["['prereq', 'target'] None", "['prereq', 'target']"]


def test_all_imports_lazy(lazily):
    code = "cudaguard.install(rules=[RULE])\nimport target, unused\nprint(order())\n"
    code += "print(target.WHO, order())"
    lines = lazily(code, PYTHON_LAZY_IMPORTS="all")
    assert lines == ["[]", "target ['prereq', 'target']"]
