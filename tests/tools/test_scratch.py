"""Temporary folders: private, and nothing of them stays."""

from __future__ import annotations

import os
import sys

import pytest

from cudaguard.tools.common import Scratch


def left(folder):
    return sorted(path.name for path in folder.glob("cudaguard-*"))


@pytest.mark.parametrize("command", ["run", "trace", "bisect"])
def test_command_leaves_nothing(child, command):
    child.write(
        "fine.py", "import glob, os; print(glob.glob(os.environ['TMPDIR'] + '/cudaguard-*'))"
    )
    done = child.command(
        *(sys.executable, "-m", "cudaguard", command, "fine.py"),
        env={"TMPDIR": str(child.folder)},
    )
    assert command == "bisect" or "cudaguard-run-" in done.stdout
    assert left(child.folder) == []


def test_program_gets_no_descriptor_of_ours(child):
    child.write("look.py", "import os; print(len(os.listdir('/proc/self/fd')))")
    plain = int(child.command(sys.executable, "look.py").stdout)
    guarded = int(child.command(sys.executable, "-m", "cudaguard", "run", "look.py").stdout)
    assert guarded == plain + 1  # for faulthandler


def test_folder_is_private_and_links_in_it_lead_nowhere(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    scratch = Scratch("bisect", str(tmp_path))
    assert os.stat(scratch.folder).st_mode & 0o777 == 0o700
    os.symlink(precious, f"{scratch.folder}/link")
    scratch.close()
    assert left(tmp_path) == []
    assert (precious / "file").read_text() == "kept"


def test_folder_that_is_too_deep_ends_no_command(child):
    scratch = Scratch("bisect", str(child.folder))
    deep = "import os\nfor _ in range(1100):\n    os.mkdir('d')\n    os.chdir('d')\n"
    child.command(sys.executable, "-c", f"import os; os.chdir({scratch.folder!r})\n{deep}")
    try:
        scratch.close()
    finally:
        child.command("rm", "-rf", scratch.folder)  # pytest could not
