"""The compiler that does nothing twice makes what the real one makes, and says what it says."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from .kept import DONE, Kept
from .kept_objects import make_compilers

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
WARNED = "int f(int x) { int unused; return x; }\n"


@pytest.fixture
def kept(tmp_path):
    """Where nothing is kept yet."""
    return Kept(tmp_path / "kept", 1e9)


@pytest.fixture
def compiles(kept, tmp_path):
    """Runs the compiler in a folder; returns its status and what it said."""
    make_compilers(tmp_path, kept)

    def compiles(folder, *words):
        folder.mkdir(exist_ok=True)
        command = [str(tmp_path / "g++"), *words]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stderr

    return compiles


def made(kept):
    """How many results are kept."""
    return len(list(kept.home.glob(f"*/{DONE}")))


def test_second_result_is_the_first_one(compiles, kept, tmp_path):
    words = ("-Wall", "-MMD", "-MF", "f.o.d", "-c", "f.cpp", "-o", "f.o")
    said, objects = [], []
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "f.cpp").write_text(WARNED)
        said.append(compiles(folder, *words))
        objects.append((folder / "f.o").read_bytes())
        assert made(kept) == 1
    assert said[0] == said[1]
    assert (said[0][0], "unused variable" in said[0][1]) == (0, True)
    assert objects[0] == objects[1]


@pytest.mark.parametrize("change", ["text", "word"])
def test_other_sources_or_words_are_compiled(compiles, kept, tmp_path, change):
    source = tmp_path / "f.cpp"
    source.write_text("int f() { return VALUE; }\n")
    assert compiles(tmp_path, "-DVALUE=1", "-c", "f.cpp", "-o", "f.o") == (0, "")
    first = (tmp_path / "f.o").read_bytes()
    if change == "text":
        source.write_text("int f() { return VALUE + 6; }\n")
    value = "-DVALUE=1" if change == "text" else "-DVALUE=7"
    assert compiles(tmp_path, value, "-c", "f.cpp", "-o", "f.o") == (0, "")
    assert made(kept) == 2
    assert (tmp_path / "f.o").read_bytes() != first


def test_error_is_told_each_time_and_not_kept(compiles, kept, tmp_path):
    (tmp_path / "f.cpp").write_text("#error no\n")
    for _ in range(2):
        status, said = compiles(tmp_path, "-c", "f.cpp", "-o", "f.o")
        assert (status, "#error no" in said) == (1, True)
    assert made(kept) == 0


def test_all_else_is_left_to_the_real_one(compiles, kept, tmp_path):
    (tmp_path / "f.cpp").write_text("int f() { return 1; }\n")
    assert compiles(tmp_path, "-c", "f.cpp")[0] == 0  # to where the compiler itself chooses
    assert compiles(tmp_path, "-shared", "f.o", "-o", "f.so") == (0, "")
    assert compiles(tmp_path, "--version") == (0, "")
    assert compiles(tmp_path)[0] == 1  # no input files
    assert made(kept) == 0
    assert (tmp_path / "f.so").exists()
