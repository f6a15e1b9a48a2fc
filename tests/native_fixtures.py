"""Stub drivers: libcuda.so.1 and libnvidia-ml.so.1 compiled from ``tests/native``.

They stand in for the driver where there is none, in child processes only. What they model is said
in the C sources, and the controls are listed in ``native/stub.h``.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Union

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Control = Union[str, int, Sequence[object], Mapping[str, object]]

GLIBC_ONLY = pytest.mark.skipif(
    sys.platform != "linux" or not platform.libc_ver()[0].startswith("glibc"),
    reason="what the loader finds is tested with that of glibc",
)
SOURCES = Path(__file__).resolve().parent / "native"
WARNINGS = ("-std=gnu11", "-Wall", "-Wextra")
# For the wide variant: memory and streams, and functions that only exist.
WIDE = ("stub_memory.c", "stub_copies.c", "stub_streams.c")
MODELED = {
    name
    for source in ("stub_cuda.c", *WIDE)
    for name in re.findall(r"^API int (\w+)\(", (SOURCES / source).read_text(), re.MULTILINE)
}
UNMODELED = """
__attribute__((visibility("hidden"))) int stub_cuda_unmodeled(const char *function);
#define F(name) \
    __attribute__((visibility("default"))) int name(void) { return stub_cuda_unmodeled(#name); }
"""
LINE = re.compile(r"(\d+) (\d+) (\d+) (\w+)(?: (.*?))??(?: @(\S+))? -> (-?\d+)")
CONTROLS = set(re.findall(r"^ \*   STUB_CUDA_(\w+)", (SOURCES / "stub.h").read_text(), re.M))
DRIVER_NAME = re.compile(rb"\bcu[A-Z]\w{2,}")
DEVICE = re.compile(r'^    \{"(.+?)", "(.+?)", (\w+), (\w+),', re.MULTILINE)


class Call(NamedTuple):
    """One line of the log: a call of one of the two libraries."""

    pid: int
    tid: int
    seq: int  # counts the calls of that library in that process
    name: str
    args: str
    rc: int
    context: str = ""  # that was current when it began: "primary0", "own1", "green0", "-"


class Device(NamedTuple):
    """A GPU of the stubs; they have the first few of `DriverStubs.devices`."""

    name: str
    uuid: str  # "GPU-...", as both libraries and CUDA_VISIBLE_DEVICES have it
    bus_id: str  # as cuDeviceGetPCIBusId has it


class DriverStubs:
    """Compiled stubs, how to use them in a child process, and what was called there."""

    def __init__(self, folder: Path, compiler: str) -> None:
        self.folder = folder
        self.compiler = compiler
        found = DEVICE.findall((SOURCES / "devices.h").read_text())
        self.wider: dict[frozenset[str], DriverStubs] = {}
        # In PCI order, which is the order of NVML; CUDA's default order is the reverse.
        self.devices = [
            Device(name, f"GPU-{uuid}", f"{int(domain, 0):04X}:{int(bus, 0):02X}:00.0")
            for name, uuid, domain, bus in found
        ]

    def build(self, name: str, *sources: Path, flags: Iterable[str] = ()) -> None:
        """Compile one library into the folder."""
        command = [self.compiler, *WARNINGS, *flags, "-O1", "-shared", "-fPIC"]
        command += ["-fvisibility=hidden", f"-Wl,-soname,{name}", "-o", str(self.folder / name)]
        command += [*map(str, sources), "-lpthread", "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr

    def build_both(self, *more: Path) -> None:
        """Compile both libraries into the folder, libcuda.so.1 with further sources."""
        self.build("libcuda.so.1", SOURCES / "stub_cuda.c", *more)
        self.build("libnvidia-ml.so.1", SOURCES / "stub_nvml.c")

    def wide(self, *users: Path) -> DriverStubs:
        """Return stubs that also have every function of the driver that the files name.

        The files are ``cuda.h``, or libraries that use the driver, linked to it or not. Memory can
        be allocated, filled and copied, streams and events exist; what is not modeled can be
        found and called, but says CUDA_ERROR_NOT_SUPPORTED (801).
        """
        found = {name.decode() for user in users for name in DRIVER_NAME.findall(user.read_bytes())}
        names = frozenset(found - MODELED)
        if names not in self.wider:
            folder = self.folder / f"wide{len(self.wider)}"
            folder.mkdir()
            source = folder / "unmodeled.c"
            source.write_text(UNMODELED + "".join(f"F({name})\n" for name in sorted(names)))
            stubs = self.wider[names] = DriverStubs(folder, self.compiler)
            stubs.build_both(source, *(SOURCES / part for part in WIDE))
        return self.wider[names]

    def environment(
        self,
        devices: int = 2,
        visible: str | None = None,
        log: Path | None = None,
        order: str | None = None,
        **controls: Control | None,
    ) -> dict[str, str]:
        """The variables with which a child process finds the stubs instead of a driver.

        `visible` and `order` are CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. `controls` are those
        of ``stub.h`` in lower case: a number, a text, a list with one value per device, or a
        dictionary (``rc={"cuInit": 803}``).
        """
        variables = {"STUB_CUDA_DEVICES": str(devices)}
        path = [str(self.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, path))
        # A variable cannot be taken out of what a child inherits, only set to what it means
        # when it is not there.
        if visible is None and "CUDA_VISIBLE_DEVICES" in os.environ:
            visible = ",".join(map(str, range(devices)))
        if order is None and "CUDA_DEVICE_ORDER" in os.environ:
            order = "FASTEST_FIRST"
        if visible is not None:
            variables["CUDA_VISIBLE_DEVICES"] = visible
        if order is not None:
            variables["CUDA_DEVICE_ORDER"] = order
        if log is not None:
            variables["STUB_CUDA_LOG"] = str(log)
        for key, value in controls.items():
            if key.upper() not in CONTROLS:
                raise TypeError(f"the stubs have no control {key!r}; those they have: {CONTROLS}")
            if value is not None:
                variables[f"STUB_CUDA_{key.upper()}"] = _as_text(value)
        return variables

    def calls(self, log: Path) -> list[Call]:
        """What was called, in this order; nothing if there is no log."""
        found = []
        for line in log.read_text().splitlines() if log.exists() else ():
            match = LINE.fullmatch(line)
            assert match, f"not a line of the stubs: {line!r}"
            pid, tid, seq, name, args, context, rc = match.groups()
            ids = int(pid), int(tid), int(seq)
            found.append(Call(*ids, name, args or "", int(rc), context or ""))
        return found


def _as_text(value: Control) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


@pytest.fixture(scope="session")
def driver_stubs(tmp_path_factory: pytest.TempPathFactory) -> DriverStubs:
    """The stub drivers, compiled once."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the stub drivers are ELF libraries for the loader of Linux")
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler (cc)")
    stubs = DriverStubs(tmp_path_factory.mktemp("driver_stubs"), compiler)
    stubs.build_both()
    return stubs
