"""Every example runs and says what its text promises."""

from __future__ import annotations

import sys

import pytest

from ..decord_fault import needs_decord, needs_fault


@pytest.fixture
def example(child, root):
    """Runs one example, with what stands before its path on the command line."""

    def run(name, *before, env=None):
        return child.command(sys.executable, *before, root / "examples" / name, env=env).stdout

    return run


@needs_decord
def test_install(example):
    said = example("door_install.py")
    assert said.startswith("read back: True\ncudaguard: mode fix")
    assert "changed: libdecord.so" in said


@needs_decord
def test_guard(example):
    assert example("door_guard.py") == "read back: True\nmode after the block: off\n"


@needs_decord
@needs_fault
def test_unchanged_program(example):
    name = "door_unchanged.py"
    assert example(name) == "read back: False\n"
    assert example(name, env={"CUDAGUARD": "fix"}) == "read back: True\n"
    assert example(name, "-m", "cudaguard", "run") == "read back: True\n"


def test_own_rule(example):
    assert example("own_rule.py") == "colorsys came first: True\n['colorsys']\n"


def test_configuration_file(child, root):
    env = {"CUDAGUARD": "fix", "CUDAGUARD_CONFIG": str(root / "examples" / "cudaguard.toml")}
    code = "import sys, wave; n = list(sys.modules); print(n.index('colorsys') < n.index('wave'))"
    done = child.python(code, env=env)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_no_example_is_forgotten(root):
    """A new program in the folder needs a test here and a row in its README."""
    table = (root / "examples" / "README.md").read_text(encoding="utf-8")
    programs = {path.name for path in (root / "examples").glob("*.py")}
    assert programs == {"door_install.py", "door_guard.py", "door_unchanged.py", "own_rule.py"}
    assert all(name in table for name in programs)
