"""Programs that use a CUDA driver: a stub (see `native_fixtures`), or the one that is here."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ...conftest import ROOT
from ...native_fixtures import Device
from ...processes import Child, where

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


def asked(cu=None):
    """What the driver answers to a question: 0, or 3 (not initialized)."""
    import ctypes

    return (cu or driver()).cuDeviceGetCount(ctypes.byref(ctypes.c_int()))


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
    if not (process := os.fork()):
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
INITIALIZE = f"{LOAD}; cu.cuInit(0)"
RETAIN = f"{INITIALIZE}; cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), {{}})"
OWN = f"{INITIALIZE}; cu.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, {{}})"

# A test so marked runs on the stub, and on a machine with a GPU (-m gpu) on its driver as well.
# What it asserts must hold on both, so it uses device 0, or says how many devices it needs.
on_both_drivers = pytest.mark.parametrize(
    "program", ["stub", pytest.param("real", marks=pytest.mark.gpu)], indirect=True
)


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

    is_real = False

    def __init__(self, child: Any, stubs: native_fixtures.DriverStubs | None) -> None:
        self.child = child
        self.stubs = stubs
        self.folder = child.folder
        self.log = child.folder / "calls.log"
        child.write("scene.py", SCENE)

    @property
    def gpu(self) -> Device:
        """Device 0 of a program that is run without controls."""
        return self.stubs.devices[1]  # of two, numbered backwards

    @property
    def library(self) -> str:
        """The file of the driver."""
        return str(self.stubs.folder / "libcuda.so.1")

    def variables(self, **controls: Any) -> dict[str, str]:
        """The variables with which a program finds the driver."""
        return self.stubs.environment(log=self.log, **controls)

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
        return where(self.folder / file, marker)

    def run(
        self,
        code: str,
        *arguments: object,
        env: dict[str, str] | None = None,
        flags: Sequence[str] = (),
        check: bool = True,
        stubs: bool = True,
        python: str | None = None,
        timeout: float = 120,
        **controls: Any,
    ) -> Ran:
        """Run code behind ``from scene import *`` as main.py; `controls` are the stubs'."""
        path = self.folder / "main.py"
        path.write_text("from scene import *\n" + textwrap.dedent(code))
        self.log.unlink(missing_ok=True)
        variables = self.variables(**controls) if stubs else {}
        variables.update(env or {})
        command = (python or sys.executable, *flags, path, *arguments)
        done = self.child.command(*command, env=variables, check=check, timeout=timeout)
        calls = [call.name for call in self.stubs.calls(self.log)] if self.stubs else []
        return Ran(done.stdout.splitlines(), done.stderr, calls, done.returncode)

    def output(self, code: str, *arguments: object, **how: Any) -> list[str]:
        """Run code that must say nothing on stderr; return the lines it printed."""
        ran = self.run(code, *arguments, **how)
        assert ran.err == ""
        return ran.out


class RealProgram(Program):
    """The same with the driver and the GPUs of this machine. It has no log of calls."""

    is_real = True

    def __init__(self, child: Any, gpus: RealGPUs) -> None:
        super().__init__(child, None)
        self.gpus = gpus

    @property
    def gpu(self) -> Device:
        return self.gpus.devices[0]

    @property
    def library(self) -> str:
        return self.gpus.library

    def variables(
        self, devices: int | None = None, visible: str | None = None, order: str | None = None
    ) -> dict[str, str]:
        """As for the stubs; a machine with fewer devices skips the test."""
        # The checkout need not be installed where the GPU is.
        variables = {"PYTHONPATH": str(ROOT)}
        if devices is not None:
            there = len(self.gpus.devices)
            if devices > there:
                pytest.skip(f"it needs {devices} GPUs, and {there} are visible here")
            visible = ",".join(device.uuid for device in self.gpus.devices[:devices])
        if visible is not None:
            variables["CUDA_VISIBLE_DEVICES"] = visible
        if order is not None:
            variables["CUDA_DEVICE_ORDER"] = order
        return variables


class RealGPUs(NamedTuple):
    """What the driver of this machine has."""

    devices: list[Device]  # those that are visible, in CUDA's order
    library: str


# Without any of the code under test.
WHAT_IS_THERE = """
import ctypes
cu = ctypes.CDLL("libcuda.so.1")
status = cu.cuInit(0)
assert status == 0, f"cuInit answers {status}"
count = ctypes.c_int()
assert cu.cuDeviceGetCount(ctypes.byref(count)) == 0
print(next(line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line))
for number in range(count.value):
    name, bus, uuid = ctypes.create_string_buffer(99), ctypes.create_string_buffer(99), (
        ctypes.c_ubyte * 16)()
    assert cu.cuDeviceGetName(name, 99, number) == 0
    assert cu.cuDeviceGetPCIBusId(bus, 99, number) == 0
    assert cu.cuDeviceGetUuid(uuid, number) == 0
    print(name.value.decode(), bytes(uuid).hex(), bus.value.decode(), sep="|")
"""


def look_for_gpus() -> RealGPUs:
    """Ask the driver of this machine, in a child process; without one, the test is skipped."""
    done = Child(ROOT).python(WHAT_IS_THERE, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1]
        pytest.skip(f"there is no NVIDIA GPU with a driver here: {reason}")
    library, *lines = done.stdout.splitlines()
    devices = []
    for line in lines:
        name, digits, bus = line.split("|")
        cuts = (0, 8, 12, 16, 20, 32)
        uuid = "GPU-" + "-".join(digits[a:b] for a, b in zip(cuts, cuts[1:]))
        devices.append(Device(name, uuid, bus))
    return RealGPUs(devices, os.path.realpath(library))
