"""The demonstration shows a real fault and its cure, and says so when it cannot."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path

import pytest

from cudaguard.system.lending import WITHOUT_FOLDER
from cudaguard.tools import demo
from cudaguard.tools.main import main

from ..decord_fault import needs_decord, needs_fault

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@needs_decord
@needs_fault
def test_shows_the_fault_and_the_cure_whatever_guards_the_command_itself(child):
    done = child.command(sys.executable, "-m", "cudaguard", "demo", env={"CUDAGUARD": "fix"})
    without, _, with_guard = done.stdout.partition("2. With the guard")
    assert "cv2.imdecode returned None" in without
    assert "exit status 1" in without
    assert "cv2.imdecode returned the same picture" in with_guard
    assert "exit status 0" in with_guard
    assert "RTLD_GLOBAL" in with_guard


@pytest.mark.parametrize("words", [("demo",), ("doctor", "--deep"), ("doctor", "--python", "HERE")])
@needs_decord
def test_children_import_nothing_from_the_working_directory(child, words):
    names = ("argparse", "json", "subprocess", "typing", "sitecustomize", "cudaguard", "decord")
    for name in names:
        child.write(f"{name}.py", f"open({str(child.folder / 'planted')!r}, 'a').write('{name} ')")
    program = "from cudaguard.tools.main import main\nsys.exit(main(sys.argv[1:]))"
    words = [sys.executable if word == "HERE" else word for word in words]
    done = child.python(WITHOUT_FOLDER + program, *words, check=False)
    assert "CG901" in done.stdout or "2. With the guard" in done.stdout
    assert not (child.folder / "planted").exists()


@needs_decord
@needs_fault
def test_a_guard_that_does_not_cure_is_not_a_success(child):
    env = {"CUDAGUARD_RULES": "-CG001"}
    done = child.command(sys.executable, "-m", "cudaguard", "demo", env=env, check=False)
    assert done.returncode == 1
    assert "the guard did NOT prevent the fault" in done.stdout


@needs_decord
@needs_fault
def test_a_fault_that_does_not_occur_is_not_a_success(child, wheel_python, tmp_path):
    """A decord without the fault: an empty package in its place."""
    child.write("shadow/decord/__init__.py", "")
    env = {"PYTHONPATH": str(tmp_path / "shadow")}
    done = child.command(wheel_python, "-m", "cudaguard", "demo", env=env, check=False)
    assert done.returncode == 1
    assert "the fault did not occur without the guard" in done.stdout


def test_missing_packages_are_named_with_the_command(monkeypatch, capsys):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setitem(demo.PACKAGES, "no_such_package", "numpy>=1.22")
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
