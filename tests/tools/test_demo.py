"""The demonstration shows a real fault and its cure, and says so when it cannot."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path

import pytest

from ..decord_fault import needs_decord, needs_fault

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@needs_decord
@needs_fault
@pytest.mark.parametrize("around", [None, "fix", "off"])
def test_shows_the_fault_and_the_cure(child, around):
    env = {} if around is None else {"CUDAGUARD": around}
    done = child.command(sys.executable, "-m", "cudaguard", "demo", env=env)
    without, _, with_guard = done.stdout.partition("2. With the guard")
    assert "cv2.imdecode returned None" in without
    assert "exit status 1" in without
    assert "cv2.imdecode returned the same picture" in with_guard
    assert "exit status 0" in with_guard
    assert "RTLD_GLOBAL" in with_guard


@needs_decord
@needs_fault
def test_from_the_installed_wheel(child, wheel_python):
    done = child.command(wheel_python.parent / "cudaguard", "demo")
    assert "did not occur with it" in done.stdout


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


@needs_decord
def test_python_with_zlib_in_its_executable_is_told(child):
    """As Debian's since 3.14; elsewhere, played by the library itself, loaded with the program."""
    env = {"LD_PRELOAD": "libz.so.1"}
    done = child.command(sys.executable, "-m", "cudaguard", "demo", env=env, check=False)
    assert done.returncode == 1
    assert "zlib is in its global symbol scope before decord is imported" in done.stdout
    assert "nothing to show" not in done.stdout


def test_missing_packages_are_named_with_the_command(child, editable_python):
    done = child.command(editable_python, "-m", "cudaguard", "demo", check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        assert "not installed: decord, cv2, numpy" in done.stderr
        command = done.stderr.partition("\n  run: ")[2].strip()
        wanted = shlex.split(command)
        assert wanted[:4] == [str(editable_python), "-m", "pip", "install"]
        for requirement in wanted[4:]:  # those of the extra
            assert f'"{requirement}; sys_platform' in PYPROJECT.read_text()


def test_other_platforms_are_told_why_not(child):
    """The real check with another answer of the operating system."""
    code = """
        import platform, sys
        platform.machine = lambda: "aarch64"
        from cudaguard.tools.main import main
        sys.exit(main(["demo"]))
        """
    done = child.python(code, check=False)
    assert done.returncode == 2
    assert "decord 0.6.0 exists for x86-64 Linux only, and this is" in done.stderr
