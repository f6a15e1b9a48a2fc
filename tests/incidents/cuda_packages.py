"""PyCUDA, numba-cuda and cuda.core, the real ones, on the wide stub driver in place of a GPU.

PyCUDA has no wheels for Linux: it is built here once, against the stub, and kept with the cached
environment. Device memory is memory of the host there, copies and streams work, kernels do not.
The servers that fork their workers, gunicorn and celery, are there as well.
Modules elsewhere that want the fixtures import them into their conftest, as the one here does.
"""

from __future__ import annotations

import platform
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ..kept import PIP, about, make_environment, run_python
from ..processes import clean_environment
from .pins import TORCH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ..kept import Kept
    from ..native_fixtures import Call, DriverStubs

PYCUDA = "pycuda==2026.1"
# What PyCUDA needs to be built without isolation, its own requirements, and the CUDA headers.
BUILD = ("setuptools==80.9.0", "wheel==0.45.1", "nvidia-cuda-runtime==13.5.37")
BUILD += ("nvidia-cuda-crt==13.5.37", "nvidia-cuda-profiler-api==13.5.25")
PINS = (
    "numpy==2.4.6",
    "pytools==2026.1.1",
    "platformdirs==4.14.5",
    "mako==1.4.3",
    "numba==0.68.1",
    "numba-cuda==0.30.4",
)
PINS += ("cuda-core==1.2.2", "cuda-bindings==13.5.0", "gunicorn==27.0.1", "celery==5.7.0", *BUILD)
PINS += ("packaging", "importlib-metadata")

SUPPORTED = (platform.system(), platform.machine()) == ("Linux", "x86_64")


class CudaPackages(NamedTuple):
    """An environment with the packages, and the driver that they find in it."""

    python: Path
    stubs: DriverStubs


class Ran(NamedTuple):
    """What a program left."""

    out: list[str]
    err: str
    calls: Sequence[Call] = ()  # of the driver, in order
    status: int = 0

    def called(self, *names: str) -> list[tuple[str, str]]:
        """The calls of these functions, with their arguments."""
        return [(call.name, call.args) for call in self.calls if call.name in names]

    @property
    def warnings(self) -> list[str]:
        """The guard's warnings, one line each."""
        return [line for line in self.err.splitlines() if "Warning: [CG" in line]


def site_packages(python: Path) -> Path:
    """Where the packages of an environment lie."""
    (found,) = (python.parent.parent / "lib").glob("python*/site-packages")
    return found


def add_pycuda(python: Path, work: Path, stubs: DriverStubs) -> None:
    """Build PyCUDA into an environment, in the folder `work`."""
    toolkit = site_packages(python) / "nvidia" / "cu13"
    # The compiler's optimizer takes most of the time of a build, and nothing is computed here.
    env = clean_environment(CFLAGS="-O0 -g0 -w", CXXFLAGS="-O0 -g0 -w")
    work.mkdir()
    (work / "libcuda.so").symlink_to(stubs.folder / "libcuda.so.1")
    isolated = ("--no-deps", "--no-build-isolation")
    download = (*PIP, "download", *isolated, "--no-binary=:all:", PYCUDA)
    run_python(python, *download, cwd=work, env=env)
    run_python(python, "-m", "tarfile", "-e", *work.glob("*.tar.gz"), cwd=work, env=env)
    (source,) = work.glob("*/configure.py")
    where = (f"--cuda-root={toolkit}", f"--cudadrv-lib-dir={work}", "--no-cuda-enable-curand")
    run_python(python, source, *where, cwd=source.parent, env=env)
    run_python(python, *PIP, "install", *isolated, source.parent, env=env)
    shutil.rmtree(work)


@pytest.fixture(scope="session")
def cuda_packages(kept: Kept, driver_stubs: DriverStubs) -> CudaPackages:
    """The environment with PyCUDA, numba-cuda, cuda.core and torch (without CUDA)."""
    if not SUPPORTED:
        pytest.skip("the pinned wheels are those for x86-64 Linux")
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler to build PyCUDA with")
    # Behind the environment's own packages, which so go before torch's of the same name.
    torch = site_packages(kept.environment(*TORCH))

    def stubs(python: Path) -> DriverStubs:
        headers = site_packages(python) / "nvidia" / "cu13" / "include"
        return driver_stubs.wide(*(headers / name for name in ("cuda.h", "cudaProfiler.h")))

    def make(folder: Path) -> None:
        python = make_environment(folder, *PINS)
        add_pycuda(python, folder / "build-pycuda", stubs(python))
        (site_packages(python) / "torch_environment.pth").write_text(f"{torch}\n", encoding="utf-8")

    folder = kept.folder("pycuda", (about(sys.executable), PINS, PYCUDA, str(torch)), make)
    python = folder / "bin" / "python"
    return CudaPackages(python, stubs(python))


@pytest.fixture
def run_cuda(child: Any, cuda_packages: CudaPackages, root: Path) -> Callable[..., Ran]:
    """Runs a program in that environment, guarded only if it asks for that itself.

    ``run_cuda(code, *arguments, env=None, check=True, **controls)``: the code is main.py in
    ``child.folder``; `controls` are those of `DriverStubs.environment`. Nothing that is read from
    the user's home (PyCUDA's choice of a device, numba's cache) has a say.
    """
    log = child.folder / "calls.log"

    def run(
        code: str,
        *arguments: object,
        env: dict[str, str] | None = None,
        check: bool = True,
        timeout: float = 120,
        **controls: Any,
    ) -> Ran:
        path = child.write("main.py", textwrap.dedent(code))
        log.unlink(missing_ok=True)
        variables = cuda_packages.stubs.environment(log=log, **controls)
        variables.update(PYTHONPATH=str(root), HOME=str(child.folder), **(env or {}))
        done = child.command(
            cuda_packages.python, path, *arguments, env=variables, check=check, timeout=timeout
        )
        calls = cuda_packages.stubs.calls(log)
        return Ran(done.stdout.splitlines(), done.stderr, calls, done.returncode)

    return run
