"""Children of tests: fresh interpreters that know nothing of this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


# What the gallery of messages (see gallery.py) adds to the environment of children, and where it
# has their standard output noted.
EXTRA: dict[str, str] = {}
OUTPUTS: list[str] | None = None


# A free-threaded Python would switch the GIL on for stand-ins that do not say they need none, and
# warn of it.
WITHOUT_GIL = {"PYTHON_GIL": "0"} if sysconfig.get_config_var("Py_GIL_DISABLED") else {}


# Documents for others leave out the user's name, which the folders of tests hold: pytest-of-NAME.
NOBODY = {"USER": "root", "LOGNAME": "root", "SUDO_USER": ""}


# A program that tells the modes of its children, however they are started.
CHILDREN = """
    import multiprocessing, subprocess, sys

    def mode():
        import cudaguard
        return cudaguard.status().mode

    if __name__ == "__main__":
        for method in ("fork", "spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                print(method, pool.apply(mode))
        code = "import cudaguard; print('subprocess', cudaguard.status().mode)"
        subprocess.run([sys.executable, "-c", code], check=True)
        subprocess.run([sys.executable, "-I", "-c", code.replace("subprocess", "isolated")])
"""


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without anything that would switch the guard on, plus `variables`."""
    # Ranks as well: under a launcher only local rank 0 warns.
    ours = ("CUDAGUARD", "PYTHON", "COV_", "LOCAL_RANK", "OMPI_", "MPI_", "SLURM_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**kept, **NOBODY, **EXTRA, **WITHOUT_GIL, **variables}


def state_of(pid: int | str) -> str:
    """The state of a process as /proc has it: Z for one that has ended, waited for or not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def sabotaged(module: str, function: str) -> str:
    """Code after which a function of the guard fails: its own code, going by the module's name."""
    lambda_ = "eval('lambda *_: 1 / 0', {'__name__': 'cudaguard.sabotage'})"
    return f"import {module} as ours\nours.{function} = {lambda_}\n"


def where(path: Path, marker: str) -> str:
    """The ``file:line`` whose text ends with ``# marker``."""
    lines = path.read_text(encoding="utf-8").splitlines()
    (number,) = [i for i, text in enumerate(lines, 1) if text.endswith(f"# {marker}")]
    return f"{path}:{number}"


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.01)


@contextmanager
def started(command: Sequence[object], env: dict[str, str], folder: Path) -> Iterator[Any]:
    """A process that writes to `log` in a folder; in the end all of its group are killed."""
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [*map(str, command)], cwd=folder, env=clean_environment(**env), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # all are gone, as they should be
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


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

    def distribution(
        self,
        name: str,
        version: str = "1.0",
        requires: Sequence[str] = (),
        *,
        files: Sequence[str] = (),
        at: str = ".",
    ) -> None:
        """Write the metadata of a distribution into a folder; its files are only listed."""
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        text += "".join(f"Requires-Dist: {one}\n" for one in requires)
        info = f"{at}/{name.replace('-', '_')}-{version}.dist-info"
        self.write(f"{info}/METADATA", text)
        if files:
            self.write(f"{info}/RECORD", "".join(f"{file},,\n" for file in files))

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
        if OUTPUTS is not None:
            OUTPUTS.append(done.stdout)
        if check:
            assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def signaled(
        self,
        *command: object,
        number: int,
        once: Callable[[int], object],
        env: dict[str, str] | None = None,
        whole_group: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Send a command a signal once something is true of its pid; return how it ended."""
        process = subprocess.Popen(
            [str(part) for part in command],
            env=clean_environment(TMPDIR=str(self.folder), **(env or {})),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            until(lambda: once(process.pid), 60)
            (os.killpg if whole_group else os.kill)(process.pid, number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

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
