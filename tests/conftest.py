"""What all tests share: fresh interpreters that know nothing of this one."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .native_fixtures import driver_stubs as driver_stubs

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent

# A shell has what it starts with `&` ignore the keys of the terminal, and all children inherit it.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (getattr(signal, "SIGQUIT", None), signal.SIG_DFL),
):
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without anything that would switch the guard on, plus `variables`."""
    # Ranks as well: under a launcher only local rank 0 warns.
    ours = ("CUDAGUARD", "PYTHON", "COV_", "LOCAL_RANK", "OMPI_", "MPI_", "SLURM_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**kept, **variables}


class Child:
    """Runs Python code or command lines in new processes, in a folder of the test's own.

    Every run has a time limit and no standard input, so a hang is a failure and not a wait.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        """Write a file (source is dedented) into the children's working folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def command(
        self,
        *command: object,
        env: dict[str, str] | None = None,
        timeout: float = 120,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line; with `check`, a status other than 0 fails the test."""
        done = subprocess.run(
            [str(part) for part in command],
            env=clean_environment(**(env or {})),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def python(
        self,
        code: str,
        *arguments: object,
        flags: tuple[str, ...] = (),
        python: str = sys.executable,
        env: dict[str, str] | None = None,
        timeout: float = 120,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run `code` (dedented) as ``python -c`` in a fresh interpreter."""
        return self.command(
            python,
            *flags,
            "-c",
            textwrap.dedent(code),
            *arguments,
            env=env,
            timeout=timeout,
            check=check,
        )


@pytest.fixture
def child(tmp_path: Path) -> Child:
    """Runs code in fresh interpreters whose working folder is `tmp_path`."""
    return Child(tmp_path)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


def make_environment(folder: Path, *requirements: str, python: str = sys.executable) -> Path:
    """Make a virtual environment with `requirements` in `folder`; return its interpreter."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    run = {"check": True, "stdin": subprocess.DEVNULL, "env": clean_environment(), "timeout": 1500}
    subprocess.run([python, "-m", "venv", str(folder)], **run)
    interpreter = folder / "bin" / "python"
    if requirements:
        subprocess.run([str(interpreter), "-m", "pip", "install", *quiet, *requirements], **run)
    return interpreter


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT]
    subprocess.run([str(part) for part in build], check=True, env=clean_environment(), timeout=600)
    (built,) = folder.glob("cudaguard-*.whl")
    return built


@pytest.fixture(scope="session")
def wheel_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that has the wheel and the demo's packages."""
    return make_environment(tmp_path_factory.mktemp("installed") / "venv", f"{wheel}[demo]")


@pytest.fixture(scope="session")
def editable_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with an editable install of this checkout."""
    return make_environment(tmp_path_factory.mktemp("editable") / "venv", "--editable", str(ROOT))


@pytest.fixture(scope="session")
def cached_environment() -> Callable[..., Path]:
    """Returns the interpreter of an environment with exactly the pins given, built once.

    Kept under ``$CUDAGUARD_TEST_CACHE``, keyed by pins and interpreter, and built under a lock,
    so that several runs at once share one build.
    """
    default = Path.home() / ".cache" / "cudaguard-tests"
    cache = Path(os.environ.get("CUDAGUARD_TEST_CACHE") or default)

    def get(*pins: str, python: str = sys.executable) -> Path:
        import fcntl

        here = [sys.version, sys.prefix] if python == sys.executable else [python]
        key = hashlib.sha256("\n".join([*here, *pins]).encode()).hexdigest()[:16]
        folder = cache / key
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / f"{key}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                shutil.rmtree(folder, ignore_errors=True)
                make_environment(folder, *pins, python=python)
                (folder / "complete").write_text("\n".join(pins), encoding="utf-8")
        return folder / "bin" / "python"

    return get
