"""NVIDIA's search for libraries takes an old one of the machine's, past that of the environment.

As with cuda-pathfinder 1.1: it tries the names of releases from old to new on the loader's path.
"""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux' loader is looked at")
SEARCH = """
import ctypes
def load_nvidia_dynamic_lib(path):
    return ctypes.CDLL(path)
"""
PROGRAM = """
import os, sys
sys.prefix = os.path.abspath("conda")
import cudaguard; cudaguard.install()
from {module} import load_nvidia_dynamic_lib
load_nvidia_dynamic_lib({path!r})
print([one.id for one in cudaguard.status().findings])
"""


@pytest.fixture
def search(child, compiler):
    """Loads an NVRTC of the machine's, beside another in an environment of conda's."""

    def nvrtc(folder, release):
        soname = f"libnvrtc.so.{release}"
        built = compiler.library(soname, "int v;", f"-Wl,-soname,{soname}")
        file = child.write(f"{folder}/{soname}", "")
        file.write_bytes(built.read_bytes())
        return str(file)

    def search(release, own, module="cuda.pathfinder", folder="cuda-12.0/lib64", conda=True):
        child.write("cuda/__init__.py", "")
        child.write(f"{module.replace('.', '/')}.py", SEARCH)
        nvrtc("conda/lib", own)
        if conda:
            child.write("conda/conda-meta/history", "")
        path = nvrtc(f"../{child.folder.name}-machine/{folder}", release)
        program = child.write("main.py", PROGRAM.format(module=module, path=path))
        return child.command(sys.executable, program)

    return search


def test_older_one_of_the_machine_is_told(search):
    done = search(12, 13)
    assert done.stdout == "['CG826']\n"
    assert "[CG826] cuda.pathfinder loaded " in done.stderr
    assert "loaded an older NVRTC than this environment has.\n" in done.stderr
    assert "run: python -m pip show cuda-pathfinder; conda list cuda-pathfinder" in done.stderr


@pytest.mark.parametrize(
    "case",
    [
        {"release": 13, "own": 13},
        {"release": 13, "own": 12},
        {"release": 12, "own": 13, "conda": False},
        # Who names the file means it.
        {"release": 12, "own": 13, "module": "mine"},
    ],
)
def test_others_are_let_be(search, case):
    done = search(**case)
    assert (done.stdout, done.stderr) == ("[]\n", "")
