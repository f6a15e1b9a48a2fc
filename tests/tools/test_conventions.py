"""What holds for every command: help by example, one document on stdout, no color in a pipe."""

from __future__ import annotations

import os
import pty
import sys

import pytest

from cudaguard.tools.catalog import RULES
from cudaguard.tools.messages import COMMANDS

from ..conftest import clean_environment

CUDAGUARD = (sys.executable, "-m", "cudaguard")
HEAVY = (
    "ctypes", "importlib.metadata", "importlib_metadata", "json", "logging", "multiprocessing",
    "numpy", "packaging", "pynvml", "selectors", "subprocess", "tempfile", "tomllib", "torch",
    "wrapt", "cudaguard.api",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example_and_names_the_exit_statuses(child, command):
    done = child.command(*CUDAGUARD, command, "--help", env={"COLUMNS": "100"})
    assert f"cudaguard {command}" in done.stdout.lower().partition("example")[2]
    assert (done.stderr, "\033" in done.stdout) == ("", False)
    if command not in ("run", "trace"):  # which end as the program does
        assert "exit status: 0" in done.stdout.lower()


def test_help_of_all(child):
    done = child.command(*CUDAGUARD, "--help")
    for command, summary in COMMANDS.items():
        assert command in done.stdout
        assert summary.split()[0] in done.stdout
    assert "examples:" in done.stdout
    assert child.command(*CUDAGUARD, check=False).returncode == 2


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["rules", "test", "--help"]])
def test_help_and_version_import_nothing_heavy(child, arguments):
    code = f"""
        import sys
        before = set(sys.modules)
        from cudaguard.tools.main import main
        try:
            main({arguments!r})
        except SystemExit as done:
            assert not done.code
        print("loaded", *sorted(set(sys.modules) - before))
        """
    *_, last = child.python(code).stdout.splitlines()
    assert set(last.split()) & set(HEAVY) == set()
    assert "argparse" in last


@pytest.mark.parametrize("task", [["list"], ["test", "CG008"], ["show", "CG001"]])
def test_no_color_where_nobody_sees_it(child, task):
    for env in ({}, {"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        done = child.command(*CUDAGUARD, "rules", *task, env=env, check=False)
        assert "\033" not in done.stdout + done.stderr
    forced = {"FORCE_COLOR": "1"}
    json = child.command(*CUDAGUARD, "rules", *task, "--format", "json", env=forced, check=False)
    assert "\033" not in json.stdout


def test_color_where_it_is_asked_for_or_seen(child):
    done = child.command(
        *CUDAGUARD, "rules", "test", "CG008", env={"FORCE_COLOR": "1"}, check=False
    )
    assert done.stdout.startswith("\033[1mCG008")
    assert on_a_terminal("rules", "test", "CG008").startswith("\033[1mCG008")
    assert on_a_terminal("rules", "test", "CG008", NO_COLOR="1").startswith("CG008: ")


def on_a_terminal(*arguments, **variables):
    """Return what a command writes to a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        environment = clean_environment(TERM="xterm", **variables)
        os.execve(sys.executable, [*CUDAGUARD, *arguments], environment)
    shown = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # as Linux ends it
            data = b""
        if not data:
            break
        shown += data
    os.waitpid(child, 0)
    os.close(terminal)
    return shown.decode()


def test_list_is_one_line_per_rule(child):
    assert len(child.command(*CUDAGUARD, "rules", "list").stdout.splitlines()) == len(RULES)
