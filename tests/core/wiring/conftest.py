"""A small program to guard: `target`, `needed` and `other`, and one rule that orders them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import subprocess

SCENE = '''
"""What every child of these tests starts with."""
import os
import sys

import cudaguard


def rule(id="ORDER1", watch=("target",), needs=("needed",), **more):
    return cudaguard.Rule(id=id, watch=watch, needs=needs, why="target needs needed.", **more)


def order():
    """Which of the modules of the program were imported, in which order."""
    return " ".join(name for name in sys.modules if name in ("target", "needed", "other"))


def found():
    """Ids of the findings so far."""
    return " ".join(finding.id for finding in cudaguard.status().findings)


def mode():
    return cudaguard.status().mode


def as_ours(function):
    """A function as one of the guard's, which may contain what its own code raises."""
    names = {**globals(), "__name__": "cudaguard.sabotage"}
    return type(function)(function.__code__, names)
'''

CONFIG = """
mode = "{mode}"

[[rules]]
id = "FILE1"
watch = ["target"]
needs = ["needed"]
why = "target needs needed."
"""


class Program:
    """Runs code in a folder that holds the modules and `scene.py`."""

    def __init__(self, child: Any) -> None:
        self.child = child
        self.folder = child.folder
        self.write = child.write
        self.python = (sys.executable,)
        for name in ("target", "needed", "other"):
            child.write(f"{name}.py", f"WHO = {name!r}\n")
        child.write("scene.py", SCENE)

    def config(self, mode: str = "fix", name: str = "cudaguard.toml") -> str:
        """Write a configuration file with a mode and the order rule FILE1."""
        return str(self.write(name, CONFIG.format(mode=mode)))

    def run(self, code: str, *arguments: object, **how: Any) -> subprocess.CompletedProcess[str]:
        """Run code that can use everything in `scene.py`."""
        import textwrap

        full = "from scene import *\n" + textwrap.dedent(code)
        done: subprocess.CompletedProcess[str] = self.child.python(full, *arguments, **how)
        return done

    def output(self, code: str, *arguments: object, **how: Any) -> list[str]:
        """Run code that must say nothing on stderr, and return the lines it printed."""
        done = self.run(code, *arguments, **how)
        assert done.stderr == ""
        return done.stdout.splitlines()


@pytest.fixture
def program(child: Any) -> Program:
    """The small program, in a folder of the test's own."""
    return Program(child)
