"""Programs that use a CUDA driver, which is a stub: see `native_fixtures`."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import native_fixtures

# What every program can use. It brings neither ctypes nor the driver into the process by itself.
SCENE = '''
import os
import sys

import cudaguard


def driver():
    """libcuda, loaded by this program itself."""
    import ctypes

    return ctypes.CDLL("libcuda.so.1")


def own_context(device=0):
    """A context that is not the primary one, left current."""
    import ctypes

    return driver().cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, device)


def found(*ids):
    """The findings so far, of these ids only if any are given."""
    findings = cudaguard.status().findings
    return [f for f in findings if not ids or f.id in ids]


def ids():
    return [finding.id for finding in found()]


def events(*kinds):
    return [e for e in cudaguard.status().events if e.kind in kinds]


def attempt(function, *arguments, **more):
    """Call; print the outcome on one line."""
    try:
        print("ok", function(*arguments, **more))
    except Exception as error:
        print(type(error).__name__, str(error).replace("\\n", " "))


def in_child(function):
    """Call a function in a child made by os.fork; fails if that fails."""
    sys.stdout.flush()
    process = os.fork()
    if not process:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    assert os.waitpid(process, 0)[1] == 0, "the child failed"
'''

# What a module does with CUDA while it is imported, in one line each: the line is looked for.
LOAD = "import ctypes; cu = ctypes.CDLL('libcuda.so.1')"
INITIALISE = f"{LOAD}; cu.cuInit(0)"
RETAIN = f"{INITIALISE}; cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), {{}})"
OWN = f"{INITIALISE}; cu.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, {{}})"


class Ran(NamedTuple):
    """What a program left."""

    out: list[str]
    err: str
    calls: list[str]  # names of the functions of both stubs that were called, in order
    status: int

    @property
    def warned(self) -> list[str]:
        """Ids of what was warned of, one for each warning."""
        return [line.partition("[")[2].partition("]")[0] for line in self.warnings]

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if "Warning: [CG" in line]


class Program:
    """A program in a folder of the test's own, run with the stubs in place of a driver."""

    def __init__(self, child: Any, stubs: native_fixtures.DriverStubs) -> None:
        self.child = child
        self.stubs = stubs
        self.folder = child.folder
        self.log = child.folder / "calls.log"
        child.write("scene.py", SCENE)

    def module(self, name: str, *code: str) -> None:
        """Write a module, with the packages that it lies in; pieces of code are dedented."""
        package, _, last = name.rpartition(".")
        path = self.folder
        for part in package.split(".") if package else ():
            path /= part
            path.mkdir(exist_ok=True)
            (path / "__init__.py").touch()
        (path / f"{last}.py").write_text("\n".join(map(textwrap.dedent, code)) + "\n")

    def where(self, marker: str, file: str = "main.py") -> str:
        """The ``file:line`` whose text ends with ``# marker``."""
        path = self.folder / file
        lines = path.read_text().splitlines()
        (number,) = [i for i, text in enumerate(lines, 1) if text.endswith(f"# {marker}")]
        return f"{path}:{number}"

    def run(
        self,
        code: str,
        *arguments: object,
        env: dict[str, str] | None = None,
        flags: Sequence[str] = (),
        check: bool = True,
        stubs: bool = True,
        python: str | None = None,
        **controls: Any,
    ) -> Ran:
        """Run code behind ``from scene import *`` as main.py; `controls` are the stubs'."""
        path = self.folder / "main.py"
        path.write_text("from scene import *\n" + textwrap.dedent(code))
        self.log.unlink(missing_ok=True)
        variables = self.stubs.environment(log=self.log, **controls) if stubs else {}
        variables.update(env or {})
        done = self.child.command(
            python or sys.executable, *flags, path, *arguments, env=variables, check=check
        )
        calls = [call.name for call in self.stubs.calls(self.log)]
        return Ran(done.stdout.splitlines(), done.stderr, calls, done.returncode)

    def output(self, code: str, *arguments: object, **how: Any) -> list[str]:
        """Run code that must say nothing on stderr; return the lines it printed."""
        ran = self.run(code, *arguments, **how)
        assert ran.err == ""
        return ran.out


@pytest.fixture
def program(child: Any, driver_stubs: native_fixtures.DriverStubs) -> Program:
    """A program that finds the stub drivers."""
    return Program(child, driver_stubs)
