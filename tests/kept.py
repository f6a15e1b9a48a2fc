"""What tests keep between runs: environments and unpacked wheels, each made once.

They lie under ``$CUDAGUARD_TEST_CACHE`` (default: ``cudaguard-tests`` in the user's cache), in
folders whose names are made from what is in them. A folder is shared by all runs that want it, so
tests only read it. A run ends by removing those older than `AGE`, as not all that they were made
from is pinned, and then the least recently used until the rest takes no more than
``$CUDAGUARD_TEST_CACHE_GB``. What another run is using stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if sys.platform != "win32":
    import fcntl

from .processes import clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")
LIMIT = 1500  # seconds that one installation may take
AGE = 30 * 24 * 3600  # seconds
DEFAULT_GB = 40
DONE = "complete"  # a file in each finished folder: its size in bytes, and when it was made


def run_python(python: object, *arguments: object, **how: object) -> None:
    """Run an interpreter; pip hears nothing that was meant for the tests."""
    options = {"env": clean_environment(), "timeout": LIMIT, **how}
    command = [str(part) for part in (python, *arguments)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, **options)


def make_environment(
    folder: Path, *requirements: str, python: str = sys.executable, with_pip: bool = True
) -> Path:
    """Make a virtual environment with `requirements` in `folder`; return its interpreter.

    Without pip it is made in half the time; then this interpreter's own installs into it.
    """
    run_python(python, "-m", "venv", *([] if with_pip else ["--without-pip"]), folder)
    interpreter = folder / "bin" / "python"
    if requirements and with_pip:
        run_python(interpreter, *PIP, "install", *requirements)
    elif requirements:
        run_python(sys.executable, *PIP, "--python", interpreter, "install", *requirements)
    return interpreter


class Kept:
    """The folders that are kept, and which of them this process uses."""

    def __init__(self, home: Path, limit: float, age: float = AGE) -> None:
        self.home = home
        self.limit = limit  # bytes
        self.age = age  # seconds
        self.used: dict[str, contextlib.ExitStack] = {}  # hold the locks of what must stay

    def folder(self, name: str, recipe: object, make: Callable[[Path], object]) -> Path:
        """Return the folder that `make` fills, filled by now.

        `name` is for people; `recipe` says all that the content depends on.
        """
        key = f"{name}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"
        folder = self.home / key
        if key in self.used:
            return folder
        self.home.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(self._open(key))
            fcntl.flock(lock, fcntl.LOCK_SH)
            while not (folder / DONE).exists():
                fcntl.flock(lock, fcntl.LOCK_EX)  # lets go of the other lock first
                if not (folder / DONE).exists():
                    shutil.rmtree(folder, ignore_errors=True)
                    make(folder)
                    about = f"{size_of(folder)} {time.time()}"
                    (folder / DONE).write_text(about, encoding="ascii")
                fcntl.flock(lock, fcntl.LOCK_SH)
            os.utime(folder / DONE)
            self.used[key] = stack.pop_all()
        return folder

    def environment(self, *pins: str, python: str = sys.executable) -> Path:
        """Return the interpreter of an environment with exactly these pins."""
        recipe = (about(python), pins)
        folder = self.folder(
            "environment", recipe, lambda folder: make_environment(folder, *pins, python=python)
        )
        return folder / "bin" / "python"

    def packages(self, *requirements: str, python: str = sys.executable) -> Path:
        """Return a folder with these alone, as ``pip install --no-deps --target`` makes it."""
        command = (*PIP, "install", "--no-deps", "--target")
        return self.folder(
            requirements[0].partition("=")[0],
            (about(python), requirements),
            lambda folder: run_python(python, *command, folder, *requirements),
        )

    def clean(self) -> list[str]:
        """Remove what is no longer worth its place; return the names of those removed."""
        folders = sorted(map(self._look, filter(Path.is_dir, self.home.glob("*"))))
        total = sum(size for _, size, _, _ in folders)
        removed = []
        for _, size, made, name in folders:
            is_old = time.time() - made > self.age
            if (is_old or total > self.limit) and self._remove(name):
                total -= size
                removed.append(name)
        return removed

    def release(self) -> None:
        """Let others remove what this process has used."""
        for lock in self.used.values():
            lock.close()
        self.used.clear()

    def _look(self, folder: Path) -> tuple[float, float, float, str]:
        """Return when a folder was last used, its size, when it was made, and its name."""
        done = folder / DONE
        try:
            size, made = map(float, done.read_text(encoding="ascii").split())
            return done.stat().st_mtime, size, made, folder.name
        except (OSError, ValueError):
            return 0, 0, 0, folder.name  # its making was interrupted, or is under way

    def _remove(self, key: str) -> bool:
        """Remove a folder unless somebody uses it; its lock stays, as others may wait for it."""
        with self._open(key) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            (self.home / key / DONE).unlink(missing_ok=True)
            shutil.rmtree(self.home / key, ignore_errors=True)
        return True

    def _open(self, key: str) -> IO[str]:
        return open(self.home / f"{key}.lock", "a", encoding="ascii")


def about(python: str) -> tuple[str, ...]:
    """Return what an environment takes from the interpreter it is made with.

    A virtual environment's own place is none of it: those of tests are new each time.
    """
    if python == sys.executable:
        return (sys.version, os.path.realpath(sys.executable))
    ask = "import os, sys; print(sys.version); print(os.path.realpath(sys.executable))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    return tuple(done.stdout.splitlines())


def size_of(folder: Path) -> int:
    """Return how many bytes the files of a folder take on the disk."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def kept_by_user() -> Kept:
    """Return what the user of these tests keeps."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = os.environ.get("CUDAGUARD_TEST_CACHE") or os.path.join(caches, "cudaguard-tests")
    limit = float(os.environ.get("CUDAGUARD_TEST_CACHE_GB") or DEFAULT_GB)
    return Kept(Path(home), limit * 1e9)
