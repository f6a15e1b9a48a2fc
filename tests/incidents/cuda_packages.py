"""PyCUDA, numba-cuda and cuda.core, the real ones, on the wide stub driver in place of a GPU.

PyCUDA has no wheels for Linux: it is built here once, against the stub, and kept with the cached
environment. Device memory is memory of the host there, copies and streams work, kernels do not.
The servers that fork their workers, gunicorn and celery, are there as well.
Modules elsewhere that want the fixtures import them into their conftest, as the one here does.
"""

from __future__ import annotations

import fcntl
import platform
import shutil
import subprocess
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ..conftest import clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
# The environment of test_torch_extension.py, so that it is built once; ours sees its packages too.
TORCH_PINS = ("torch==2.13.0", "decord==0.6.0", "ninja==1.13.0", "numpy", "setuptools")
TORCH_PINS += ("packaging", "importlib-metadata")

PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")
SUPPORTED = (platform.system(), platform.machine()) == ("Linux", "x86_64")


class CudaPackages(NamedTuple):
    """An environment with the packages, and the driver that they find in it."""

    python: Path
    stubs: DriverStubs


class Ran(NamedTuple):
    """What a program left."""

    out: list[str]
    err: str
    calls: list[Call]  # of the driver, in order
    status: int

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


def add_pycuda(python: Path, toolkit: Path, stubs: DriverStubs) -> None:
    """Build PyCUDA into the environment, unless it is there already."""
    folder = python.parent.parent
    built, work = folder / PYCUDA, folder / "build-pycuda"
    # The compiler's optimiser takes most of the time of a build, and nothing is computed here.
    environment = clean_environment(CFLAGS="-O0 -g0 -w", CXXFLAGS="-O0 -g0 -w")

    def run(*command: object, cwd: Path = work) -> None:
        subprocess.run(
            [str(part) for part in (python, *command)],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=1500,
            check=True,
        )

    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if built.exists():
            return
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        (work / "libcuda.so").symlink_to(stubs.folder / "libcuda.so.1")
        isolated = ("--no-deps", "--no-build-isolation")
        run(*PIP, "download", *isolated, "--no-binary=:all:", PYCUDA)
        run("-m", "tarfile", "-e", *work.glob("*.tar.gz"))
        (source,) = work.glob("*/configure.py")
        where = (f"--cuda-root={toolkit}", f"--cudadrv-lib-dir={work}")
        run(source, *where, "--no-cuda-enable-curand", cwd=source.parent)
        run(*PIP, "install", *isolated, source.parent)
        shutil.rmtree(work)
        built.touch()


@pytest.fixture(scope="session")
def cuda_packages(
    cached_environment: Callable[..., Path], driver_stubs: DriverStubs
) -> CudaPackages:
    """The environment with PyCUDA, numba-cuda, cuda.core and torch (without CUDA)."""
    if not SUPPORTED:
        pytest.skip("the pinned wheels are those for x86-64 Linux")
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler to build PyCUDA with")
    python = cached_environment(*PINS)
    installed = site_packages(python)
    # Behind the environment's own packages, which so go before torch's of the same name.
    torch = site_packages(cached_environment(*TORCH_PINS))
    (installed / "torch_environment.pth").write_text(f"{torch}\n", encoding="utf-8")
    toolkit = installed / "nvidia" / "cu13"
    headers = (toolkit / "include" / name for name in ("cuda.h", "cudaProfiler.h"))
    stubs = driver_stubs.wide(*headers)
    add_pycuda(python, toolkit, stubs)
    return CudaPackages(python, stubs)


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


def where(path: Path, marker: str) -> str:
    """The ``file:line`` whose text ends with ``# marker``."""
    lines = path.read_text(encoding="utf-8").splitlines()
    (number,) = [i for i, text in enumerate(lines, 1) if text.endswith(f"# {marker}")]
    return f"{path}:{number}"
