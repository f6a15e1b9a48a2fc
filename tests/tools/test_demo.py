"""The demonstration shows a real fault and its cure, and says so when it cannot."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path

import pytest

from cudaguard.tools import demo
from cudaguard.tools.main import main

from ..decord_fault import needs_decord, needs_fault

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
DEMO = (sys.executable, "-m", "cudaguard", "demo")


@needs_decord
@needs_fault
def test_shows_the_fault_and_the_cure_whatever_guards_the_command_itself(child):
    done = child.command(*DEMO, env={"CUDAGUARD": "fix"})
    without, _, with_guard = done.stdout.partition("2. With the guard")
    assert ("read back: False" in without, "read back: True" in with_guard) == (True, True)


@needs_decord
@needs_fault
def test_demonstration_prints_what_the_readme_shows(child, root):
    readme = (root / "README.md").read_text()
    shown = readme.split("cudaguard demo\n```\n", 1)[1].split("```")[1]
    assert shown.removeprefix("text\n") in child.command(*DEMO).stdout


@needs_decord
@needs_fault
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"CUDAGUARD_RULES": "-CG001,-CG812"}, "The guard did NOT prevent the fault"),
        # As Debian's Python is linked since 3.14.
        ({"LD_PRELOAD": "libz.so.1"}, "does not show the fault"),
    ],
)
def test_what_shows_nothing_is_not_a_success(child, env, said):
    done = child.command(*DEMO, env=env, check=False)
    assert (done.returncode, said in done.stdout) == (1, True)


def test_missing_packages_are_named_with_the_command(monkeypatch, capsys):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setitem(demo._PACKAGES, "no_such_package", "numpy>=1.22")
    assert main(["demo"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no_such_package" in err.partition("not installed: ")[2]
    wanted = shlex.split(err.partition("\n  run: ")[2])
    assert wanted[:4] == [sys.executable, "-m", "pip", "install"]
    for requirement in wanted[4:]:  # those of the extra
        assert f'"{requirement}; sys_platform' in PYPROJECT.read_text()


def test_other_platforms_are_told_why_not(monkeypatch, capsys):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert main(["demo"]) == 2
    assert "decord 0.6.0 exists for x86-64 Linux only, and this is" in capsys.readouterr().err
