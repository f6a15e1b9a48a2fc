"""Commands on real terminals of 40, 80 and 120 columns: wrapped, faults first, a command last."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import termios

import pytest

from ..processes import clean_environment, until
from ..terminals import Terminal
from .doctor import build as build
from .doctor import planted as planted
from .doctor import torch

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
CUDAGUARD = (sys.executable, "-m", "cudaguard")
WIDTHS = (40, 80, 120)
NARROW = (40, 120)
COLOR = re.compile(r"\x1b\[[\d;]*m")
# What is on standard error meanwhile is overwritten: a line of progress, and what clears it.
PROGRESS = re.compile(r"^.* {8,}(?=\S)")
ATOM = r"\S*[\w/\]]\S{12,}\S*"  # a path, an id, an address: nothing that could be broken


class Shown:
    """What was on the terminal at the end.

    Args:
        text: All of it.
        columns: Its width.
        status: The exit status of the command.
    """

    def __init__(self, text, columns, status):
        self.colored, self.columns, self.status = text, columns, status
        self.lines = COLOR.sub("", text).rstrip("\n").split("\n")

    def too_long(self, *verbatim):
        """Return the lines that are too long although they could be broken.

        A label may stand before what cannot; a command behind ``run:`` is never broken.
        """
        return [
            line
            for line in self.lines
            if len(line) > self.columns
            and not line.strip().startswith("run: ")
            and not re.fullmatch(rf"\s*(\S+: +|\w+=)?{ATOM}", line)
            and not any(text in line for text in verbatim)
        ]

    def order(self, *starts):
        """Return these words in the order in which lines begin with them, each once."""
        found = [start for line in self.lines for start in starts if line.startswith(start)]
        return list(dict.fromkeys(found))


@pytest.fixture
def screen(child):
    """Runs a command on a terminal of its own, and returns what it shows."""
    opened = []

    def start(*command, columns=80, **variables):
        env = clean_environment(TMPDIR=str(child.folder), TERM="xterm")
        for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
            env.pop(name, None)
        env.update(variables)

        def process(*words, **how):
            return subprocess.Popen([*map(str, words)], cwd=child.folder, env=env, **how)

        opened.append(Terminal(process, *command, columns=columns))
        return opened[-1]

    def screen(columns, *command, **variables):
        terminal = start(*command, columns=columns, **variables)
        return Shown(terminal.whole(), columns, terminal.process.wait(60))

    screen.start = start
    yield screen
    for terminal in opened:
        if terminal.process.poll() is None:
            terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)


@pytest.fixture
def broken(planted, build):
    """An environment with an extension that was built for another torch."""
    for name in ("libc10.so", "libtorch.so", "libtorch_cpu.so"):
        build(f"torch/lib/{name}", "int c10_there(void) { return 1; }", f"-Wl,-soname,{name}")
    torch(planted, "2.6.0+cpu")
    file = f"mine/_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    functions = [f"int _ZN3c10{number}missing{number}Ev(void);" for number in range(10, 20)]
    calls = " + ".join(f"_ZN3c10{number}missing{number}Ev()" for number in range(10, 20))
    lib = planted.folder / "torch" / "lib" / "libc10.so"
    source = "\n".join([*functions, f"int PyInit__C(void) {{ return {calls}; }}"])
    build(file, source, "-Wl,--no-as-needed", lib)
    planted.distribution("mine", files=(file,))
    return planted


STARTS = ("cudaguard ", "broken ", "fail ", "warning ", "note ", "ok ", "skipped ")


@pytest.mark.slow
@pytest.mark.parametrize("columns", WIDTHS)
def test_doctor(broken, screen, columns):
    shown = screen(columns, *CUDAGUARD, "doctor", PYTHONPATH=str(broken.folder))
    shown.lines[0] = shown.lines[0][shown.lines[0].rfind("cudaguard 0") :]  # behind the progress
    assert shown.status == 1, shown.lines
    assert shown.too_long() == []
    order = shown.order(*STARTS)
    assert order == [start for start in STARTS if start in order]
    assert {"fail ", "ok ", "skipped "} <= {*order}
    verdict = next(n for n, line in enumerate(shown.lines) if re.match(r"\d+ error", line))
    assert shown.lines[verdict + 1].startswith("run: ")
    assert len(shown.lines) == verdict + 2
    assert sum(line.startswith("skipped ") for line in shown.lines) == 1
    assert "\x1b[31mfail\x1b[0m" in shown.colored


@pytest.mark.slow
def test_doctor_is_short_where_all_is_well(screen, editable_python):
    command = (editable_python, "-m", "cudaguard", "doctor")
    shown = screen(80, *command)
    assert shown.status == 0
    assert len(shown.lines) <= 10, shown.lines
    assert "no faults found" in shown.lines[-1]
    assert not any(line.startswith("run: ") for line in shown.lines)
    whole = screen(80, *command, "--verbose")
    assert len([line for line in whole.lines if line.startswith("skipped ")]) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("columns", NARROW)
def test_check_extension(broken, screen, columns):
    command = (*CUDAGUARD, "check-extension", str(broken.folder / "mine"))
    shown = screen(columns, *command, PYTHONPATH=str(broken.folder))
    assert shown.status == 1
    assert shown.too_long() == []
    assert "1 checked: 1 would not load" in shown.lines
    assert "7 more (--verbose)" in " ".join(" ".join(shown.lines).split())
    assert shown.lines[-1].startswith("run: cudaguard check-extension --verbose ")
    whole = screen(columns, *command, "--verbose", PYTHONPATH=str(broken.folder))
    assert sum("missing symbol:" in line for line in whole.lines) == 10
    assert "(--verbose)" not in str(whole.lines)


@pytest.fixture
def dying(child):
    """A program that dies in a call of its own, some functions deep."""
    return child.write("train.py", """
        import ctypes
        import json

        def step_with_a_name_that_is_rather_long(place_in_the_memory_of_the_process):
            ctypes.string_at(place_in_the_memory_of_the_process)  # where nothing is, so it dies

        step_with_a_name_that_is_rather_long(0)
        """)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="programs are watched on Linux")
@pytest.mark.parametrize("columns", NARROW)
@pytest.mark.parametrize("command", ["run", "trace", "bisect"])
def test_program_that_dies(dying, screen, columns, command):
    shown = screen(columns, *CUDAGUARD, command, "train.py")
    shown.lines[0] = PROGRESS.sub("", shown.lines[0])
    source = dying.read_text().splitlines()
    verbatim = (
        f'File "{dying}"',
        "Fatal Python error",
        "gdb -batch",
        *(line.strip() for line in source if len(line) > 20),
    )
    assert shown.too_long(*verbatim) == []
    said = " ".join(" ".join(shown.lines).split())
    if command == "run":
        assert shown.status == -signal.SIGSEGV
        assert (
            "train.py crashed (SIGSEGV) in step_with_a_name_that_is_rather_long, at train.py:6."
            in said
        )
        assert "\x1b[1;31m" in shown.colored
    elif command == "trace":
        assert shown.status == -signal.SIGSEGV
        assert shown.lines[-1] == "run: cudaguard run train.py"
        assert "\x1b[31m✗ crashed (SIGSEGV)" in shown.colored
    assert any(line.lstrip().startswith("run: ") for line in shown.lines)


@pytest.mark.parametrize("columns", NARROW)
@pytest.mark.parametrize("command", [("explain", "CG001"), ("rules", "list")], ids=str)
def test_words(screen, columns, command):
    shown = screen(columns, *CUDAGUARD, *command)
    assert shown.too_long() == []
    assert shown.status == 0


def test_width_is_that_of_the_terminal_or_of_columns(screen):
    def widest(columns, **variables):
        shown = screen(columns, *CUDAGUARD, "explain", "CG001", **variables)
        return max(len(line) for line in shown.lines if " more: " not in f" {line}")

    assert 30 < widest(20) <= 40
    assert 50 < widest(60) <= 60
    assert 110 < widest(300) <= 120
    assert 60 < widest(300, COLUMNS="70") <= 70


def test_warning_is_wrapped_on_a_terminal(screen):
    code = "import cudaguard; cudaguard.install()"
    shown = screen(60, sys.executable, "-c", code, CUDAGUARD_RULES="CG001")
    assert len(shown.lines) > 4
    assert max(map(len, shown.lines)) <= 60
    assert not any("\x1b" in line for line in shown.colored.splitlines())


SLEEPS = "print('rea' 'dy', flush=True); import time; time.sleep(60)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "ready", "statuses"),
    [
        (("doctor", "--deep", "--only", "CG912"), "CG912", {130}),
        (("run", "-c", SLEEPS), "ready", {-signal.SIGINT}),
        (("trace", "-c", SLEEPS), "ready", {-signal.SIGINT}),
        (("bisect", "--imports", "sleeper,json"), "run 1", {130}),
    ],
    ids=["doctor", "run", "trace", "bisect"],
)
def test_interrupt_leaves_a_clean_terminal(child, screen, command, ready, statuses):
    if command[0] in ("run", "trace") and not sys.platform.startswith("linux"):
        pytest.skip("supervised on Linux")
    for file in ("sleeper.py", "torch/__init__.py"):
        child.write(file, "import time; open(__file__ + '.begun', 'w'); time.sleep(60)")
    opened = screen.start(*CUDAGUARD, *command, PYTHONPATH=str(child.folder))
    before = termios.tcgetattr(opened.master)
    opened.expect(ready)
    if command[0] == "doctor":  # Python may lose one while it imports
        until((child.folder / "torch/__init__.py.begun").exists)
    opened.type("\x03")
    text = opened.whole()
    assert opened.process.wait(20) in statuses
    assert termios.tcgetattr(opened.master) == before
    assert text.endswith("\n")
    assert text.count("\x1b[0m") == len(re.findall(r"\x1b\[[1-9][\d;]*m", text))
