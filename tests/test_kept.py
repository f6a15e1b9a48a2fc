"""What tests keep between runs is made once, never removed while in use, and does not pile up."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from .conftest import ROOT
from .kept import DONE, Kept
from .processes import clean_environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the locks are POSIX")
MAKE = """
import sys, time
from pathlib import Path
from tests.kept import Kept

def make(folder):
    time.sleep(0.3)
    folder.mkdir()
    (folder / "made").touch()
    print("made", flush=True)

kept = Kept(Path(sys.argv[1]), 1e9)
assert (kept.folder("thing", "recipe", make) / "made").exists()
"""


def fill(size):
    def make(folder):
        folder.mkdir()
        (folder / "content").write_bytes(bytes(size))

    return make


@pytest.fixture
def kept(tmp_path):
    """Where nothing is kept yet, with room for 10 MB."""
    kept = Kept(tmp_path / "kept", 10e6)
    yield kept
    kept.release()


def test_runs_at_the_same_time_make_a_folder_once(tmp_path):
    env = clean_environment(PYTHONPATH=str(ROOT))
    command = [sys.executable, "-c", MAKE, str(tmp_path / "kept")]
    runs = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE) for _ in range(3)]
    said = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert sorted(said) == [b"", b"", b"made\n"]


def test_other_recipe_is_another_folder(kept):
    one, same, other = (kept.folder("thing", recipe, fill(1)) for recipe in "aab")
    assert one == same != other


def test_interrupted_making_is_done_again(kept):
    def interrupted(folder):
        fill(7)(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.folder("thing", "recipe", interrupted)
    assert (kept.folder("thing", "recipe", fill(3)) / "content").stat().st_size == 3


def test_least_recently_used_goes_first_and_nothing_in_use(kept):
    paths = [kept.folder("thing", recipe, fill(4_000_000)) for recipe in "abc"]
    other = Kept(kept.home, kept.limit)  # as another run would see it
    assert other.clean() == []  # all are in use
    kept.release()
    for path, when in zip(paths, (300, 200, 100)):
        os.utime(path / DONE, (time.time() - when, time.time() - when))
    assert other.folder("thing", "a", fill(1)) == paths[0]  # now the most recently used
    assert kept.clean() == [paths[1].name]
    assert [path.exists() for path in paths] == [True, False, True]
    other.release()


def test_old_ones_are_made_again(kept):
    path = kept.folder("thing", "recipe", fill(1))
    kept.release()
    assert kept.clean() == []
    assert Kept(kept.home, kept.limit, age=0).clean() == [path.name]
    assert not path.exists()
