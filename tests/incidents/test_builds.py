"""Builds with the real torch.utils.cpp_extension, as they are without the guard.

The extension is a few lines without torch's headers, which compiles in a moment.
"""

from __future__ import annotations

import os
import shutil

from .marks import WITH_COMPILER
from .pins import TORCH

pytestmark = WITH_COMPILER

SOURCE = """
#include <Python.h>
static PyObject* f(PyObject*, PyObject*) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"f", f, METH_NOARGS, 0}, {0, 0, 0, 0}};
static PyModuleDef def = {PyModuleDef_HEAD_INIT, "small", 0, -1, methods};
PyMODINIT_FUNC PyInit_small(void) { return PyModule_Create(&def); }
"""
LOAD = """
import os, sys
if "guarded" in sys.argv:
    import cudaguard
    cudaguard.install()
from torch.utils.cpp_extension import load
before = dict(os.environ)
print("answer", load("small", sources=["small.cpp"]).f())
assert dict(os.environ) == before
"""


def test_healthy_build_is_the_same(child, cached_environment, root, tmp_path):
    python = cached_environment(*TORCH)
    child.write("small.cpp", SOURCE)
    program = child.write("load.py", LOAD)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "PYTHONPATH": str(root), "TORCH_EXTENSIONS_DIR": str(tmp_path / "built")}

    def build(guard):
        done = child.command(python, program, guard, env=env, timeout=200)
        assert (done.stdout, done.stderr) == ("answer 42\n", "")
        folder = tmp_path / "built" / "small"
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        shutil.rmtree(folder)
        return set(files), files["build.ninja"]

    assert build("guarded") == build("unguarded")
