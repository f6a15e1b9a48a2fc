"""Whatever is written is for this user alone, and never goes through a link of somebody else."""

from __future__ import annotations

import os
import stat
import sys

import pytest

CUDAGUARD = (sys.executable, "-m", "cudaguard")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="supervised on Linux")

WRITTEN = {
    "journal": lambda path: (sys.executable, "-c", "import cudaguard; cudaguard.install()"),
    "run": lambda path: (*CUDAGUARD, "run", "--report", path, "-c", "print(1)"),
    "trace": lambda path: (*CUDAGUARD, "trace", "-o", path, "-c", "print(1)"),
    "doctor": lambda path: (*CUDAGUARD, "doctor", "--only", "CG905", "-o", path),
    "bundle": lambda path: (*CUDAGUARD, "doctor", "--only", "CG905", "--bundle", path),
    "bisect": lambda path: (*CUDAGUARD, "bisect", "--imports", "json,broken", "-n", "1",
                            "-o", path),
}  # fmt: skip


@pytest.fixture(params=WRITTEN)
def write(child, request):
    """Runs a command that writes a file, where everybody may read what is created."""
    child.write("broken.py", "import json\nraise SystemExit(7)\n")
    child.write("journal", "kept")

    def write(path, check=True):
        command = WRITTEN[request.param](path)
        env = {"PYTHONPATH": str(child.folder)}
        if request.param == "journal":
            env["CUDAGUARD_JOURNAL"] = str(path)
        before = os.umask(0)
        try:
            return child.command(*command, env=env, check=False)
        finally:
            os.umask(before)

    write.kind = request.param
    return write


def test_files_are_created_for_this_user_alone(child, write):
    path = child.folder / "new.json"
    write(path)
    assert path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "dangling"])
def test_links_are_not_written_through(child, write, is_there):
    target, path = child.folder / "target", child.folder / "new.json"
    if is_there:
        target.write_text("kept")
    path.symlink_to(target)
    done = write(path)
    assert target.exists() is is_there
    assert not is_there or target.read_text() == "kept"
    words = "already" if write.kind == "bisect" and is_there else "link"
    assert words in done.stderr + done.stdout
    if write.kind in ("run", "trace"):  # told before the program runs for hours
        assert (done.returncode, done.stdout) == (3, "")
