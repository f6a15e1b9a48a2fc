"""Temporary folders: what a killed command has left goes with the next one, and nothing else."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from cudaguard.tools.common import Scratch, remove_abandoned

CUDAGUARD = (sys.executable, "-m", "cudaguard")
WAITING = "import time; open('begun', 'a').close(); time.sleep(60)"


def left(folder):
    return sorted(path.name for path in folder.glob("cudaguard-*"))


@pytest.fixture
def killed(child):
    """Starts a command, waits until its program runs, and kills it; what it has left."""

    def killed(*arguments, run_meanwhile=lambda: None):
        child.write("wait.py", WAITING)
        begun = child.folder / "begun"
        child.signaled(
            *CUDAGUARD, *arguments, "wait.py", number=signal.SIGKILL, whole_group=True,
            once=lambda _: begun.exists() and not run_meanwhile(),
        )  # fmt: skip
        begun.unlink()
        return left(child.folder)

    return killed


@pytest.mark.parametrize("command", [["run"], ["trace"], ["bisect"]], ids=str)
def test_next_one_removes_what_a_killed_one_has_left(child, killed, command):
    assert len(killed(*command)) == 1
    child.write("fine.py", "")
    child.command(*CUDAGUARD, "run", "fine.py", env={"TMPDIR": str(child.folder)})
    assert left(child.folder) == []


@pytest.mark.parametrize("command", [["run"], ["bisect"]], ids=str)
def test_folder_of_one_that_runs_is_left_alone(child, killed, command):
    seen = []

    def another():
        remove_abandoned(str(child.folder))
        seen.extend(left(child.folder))

    assert killed(*command, run_meanwhile=another) == seen
    assert len(seen) == 1


def test_program_does_not_get_the_lock(child):
    child.write("look.py", "import os; print(len(os.listdir('/proc/self/fd')))")
    plain = int(child.command(sys.executable, "look.py").stdout)
    guarded = int(child.command(*CUDAGUARD, "run", "look.py").stdout)
    assert guarded == plain + 1  # for faulthandler


def abandoned(parent):
    """Return a folder as a killed process leaves it."""
    scratch = Scratch("bisect", str(parent))
    os.close(scratch.lock)
    os.mkdir(os.path.join(scratch.folder, "venv"))
    return scratch.folder


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: os.chmod(folder, 0o770),  # others may have put something there
        lambda folder: os.rename(folder, f"{folder}.new"),  # it is just being made
        lambda folder: os.rename(folder, folder.replace("bisect-", "bisect-0")),
        pytest.param(
            lambda folder: os.chown(folder, 65534, 65534),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="takes root"),
        ),
    ],
    ids=["open-to-others", "unlocked", "other-machine", "other-user"],
)
def test_what_is_not_surely_abandoned_stays(tmp_path, spoil):
    spoil(abandoned(tmp_path))
    before = left(tmp_path)
    remove_abandoned(str(tmp_path))
    assert left(tmp_path) == before != []


def test_folder_that_is_too_deep_ends_no_command(child):
    deep = "import os\nfor _ in range(1100):\n    os.mkdir('d')\n    os.chdir('d')\n"
    folder = abandoned(child.folder)
    child.command(sys.executable, "-c", f"import os; os.chdir({folder!r})\n{deep}")
    try:
        remove_abandoned(str(child.folder))
    finally:
        child.command("rm", "-rf", folder)  # pytest could not


def test_links_lead_nowhere(tmp_path):
    """Planted by somebody else in a shared folder, or by a program."""
    (tmp_path / "shared").mkdir()
    target = abandoned(tmp_path)
    os.symlink(target, tmp_path / "shared" / os.path.basename(target))
    other = abandoned(tmp_path / "shared")
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    os.symlink(precious, f"{other}/link")
    remove_abandoned(str(tmp_path / "shared"))
    assert sorted(os.listdir(target)) == ["venv"]
    assert (precious / "file").read_text() == "kept"
    assert not os.path.exists(other)
