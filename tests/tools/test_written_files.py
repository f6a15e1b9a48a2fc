"""Whatever is written is for this user alone, and never goes through a link of somebody else."""

from __future__ import annotations

import os
import stat
import sys

import pytest

CUDAGUARD = (sys.executable, "-m", "cudaguard")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are watched on Linux")

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


def planted_link(path, target):
    path.symlink_to(target)
    return "link"


def hard_link(path, target):
    os.link(target, path)
    return "hard link"


def file_of_another(path, target):
    """As somebody leaves it in a shared folder, for all to write to."""
    if os.geteuid():
        pytest.skip("takes root to make a file of another user")
    os.rename(target, path)
    os.chmod(path, 0o666)
    os.chown(path, 12345, 12345)
    return "belongs to another user"


def dangling_link(path, target):
    os.unlink(target)
    return planted_link(path, target)


def source(path, target):
    """As in ``lint -o a.py b.py``."""
    os.rename(target, path)
    return "a program, and not written over"


@pytest.mark.parametrize("plant", [planted_link, dangling_link, hard_link, file_of_another, source])
def test_what_is_not_ours_is_not_written_to(child, write, plant):
    target = child.folder / "target"
    path = child.folder / ("new.py" if plant is source else "new.json")
    target.write_text("kept")
    words = plant(path, target)
    done = write(path)
    left = path if path.exists() else target
    assert not left.exists() or left.read_text() == "kept"
    assert left.exists() is (plant is not dangling_link)
    if write.kind == "bisect":
        words = "already"
    assert words in " ".join((done.stderr + done.stdout).split())
    if write.kind in ("run", "trace"):  # told before the program runs for hours
        assert (done.returncode, done.stdout) == (3, "")
