"""Metadata that are no ordinary files: they are passed over, and nothing waits for them."""

from __future__ import annotations

import compileall
import shutil
import sys

import pytest

from ...tools.doctor import planted as planted
from ..test_files import huge, pipe, zeros

LIMIT = 30  # seconds; it takes one, or for ever
odd = pytest.mark.parametrize("make", [pipe, zeros, huge], ids=lambda make: make.__name__)


@odd
def test_start_up_and_watched_imports_pass_over_odd_metadata(child, make):
    """The scan for plug-ins reads entry_points.txt, and a rule about decord METADATA."""
    child.write("site/decord/__init__.py", "print('decord runs')")
    for name in ("plug-1.0", "decord-0.6.0"):
        folder = child.folder / "site" / f"{name}.dist-info"
        folder.mkdir()
        make(folder / ("METADATA" if name.startswith("decord") else "entry_points.txt"))
    done = child.python(
        "import decord; print('the program runs')",
        env={"CUDAGUARD": "fix", "PYTHONPATH": str(child.folder / "site")},
        timeout=LIMIT,
    )
    assert (done.stdout, done.stderr) == ("decord runs\nthe program runs\n", "")


@odd
@pytest.mark.parametrize("file", ["METADATA", "RECORD", "direct_url.json"])
def test_doctor_tells_odd_metadata(planted, make, file):
    folder = planted.distribution("odd")
    (folder / file).unlink(missing_ok=True)
    make(folder / file)
    status, (found,) = planted.one("CG905", timeout=LIMIT)
    assert status == "warning"
    why = "larger than 67108864 bytes" if make is huge else "not a regular file"
    told = f"The metadata in {folder} cannot be used: OSError: [Errno 22] {why}"
    assert found["what"] == f"{told}: '{folder / file}'."


@odd
def test_commands_that_ask_for_the_files_of_a_distribution(child, make):
    folder = child.folder / "site" / "odd-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    make(folder / "RECORD")
    command = (sys.executable, "-m", "cudaguard", "check-extension", "odd")
    env = {"PYTHONPATH": str(child.folder / "site")}
    done = child.command(*command, env=env, check=False, timeout=LIMIT)
    assert done.returncode == 2


@odd
def test_packages_of_a_folder_with_odd_metadata(child, make):
    folder = child.folder / "site" / "odd-1.0.dist-info"
    folder.mkdir(parents=True)
    make(folder / "top_level.txt")
    done = child.python(
        "from cudaguard.system.packages import packages_distributions as ask; print(ask(['odd']))",
        env={"PYTHONPATH": str(child.folder / "site")},
        timeout=LIMIT,
    )
    assert done.stdout == "{}\n"


def test_files_that_our_code_does_not_name_are_ours(child, root):
    """Byte code without sources names the files it was built from; PyInstaller's, no files."""
    place = shutil.copytree(root / "cudaguard", child.folder / "cudaguard")
    compileall.compile_dir(place, quiet=2, legacy=True, stripdir=str(child.folder), force=True)
    for source in place.rglob("*.py"):
        source.unlink()
    child.write("no_folder.zip", "")  # no plug-in is found in it: a failure of ours
    code = "cudaguard.install(); print(cudaguard.__file__[-4:], cudaguard.status().mode)"
    done = child.python(f"import sys, cudaguard; sys.path.append('no_folder.zip'); {code}")
    assert (done.stdout, done.stderr) == (".pyc fix\n", "")
