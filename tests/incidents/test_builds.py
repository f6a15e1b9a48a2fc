"""Builds with the real torch.utils.cpp_extension, as they are without the guard.

The extension is a few lines without torch's headers, which compiles in a moment.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil

import pytest

from .pins import TORCH

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="torch's wheels for x86-64 Linux are used",
    ),
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler"),
]

SOURCE = """
#include <Python.h>
{more}
static PyObject* f(PyObject*, PyObject*) {{ return PyLong_FromLong({value}); }}
static PyMethodDef methods[] = {{{{"f", f, METH_NOARGS, 0}}, {{0, 0, 0, 0}}}};
static PyModuleDef def = {{PyModuleDef_HEAD_INIT, "small", 0, -1, methods}};
PyMODINIT_FUNC PyInit_small(void) {{ return PyModule_Create(&def); }}
"""
LOAD = """
import os, sys
if "guarded" in sys.argv:
    import cudaguard
    cudaguard.install()
from torch.utils.cpp_extension import load
before = dict(os.environ)
{more}
try:
    print("answer", load("small", sources={sources!r}).f())
except (ImportError, OSError, RuntimeError) as error:
    print(type(error).__name__, error)
assert dict(os.environ) == before
if "guarded" in sys.argv:
    from cudaguard.core.lifecycle import activation
    print(*(f"{{r.rule}} {{r.subject}}" for r in activation.core.reporter.repairs), sep="\\n")
"""


class Builder:
    """Loads the extension in fresh interpreters, with and without a guard."""

    def __init__(self, child, python, root, folder):
        self.child, self.python, self.folder = child, python, folder
        self.extensions = folder / "extensions"
        self.built = self.extensions / "small"
        self.env = {"PYTHONPATH": str(root), "TORCH_EXTENSIONS_DIR": str(self.extensions)}
        self.write()

    def write(self, value=42, more=""):
        self.child.write("small.cpp", SOURCE.format(value=value, more=more))

    def program(self, more="", sources=("small.cpp",)):
        text = LOAD.format(more=more, sources=list(sources))
        path = self.folder / f"load{hashlib.md5(text.encode()).hexdigest()}.py"
        if not path.exists():  # others may be about to read it
            self.child.write(path.name, text)
        return path

    def environment(self, **variables):
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        return {**self.env, "PATH": path, **variables}

    def load(self, guard="guarded", *, more="", sources=("small.cpp",), check=True, **how):
        env = self.environment(**how)
        program = self.program(more, sources)
        return self.child.command(self.python, program, guard, env=env, check=check, timeout=200)


@pytest.fixture
def builder(child, cached_environment, root, tmp_path):
    return Builder(child, cached_environment(*TORCH), root, tmp_path)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_healthy_build_is_the_same(builder):
    assert builder.load("unguarded").stdout == "answer 42\n"
    unguarded = files(builder.built)
    shutil.rmtree(builder.built)
    done = builder.load()
    assert (done.stdout, done.stderr) == ("answer 42\n\n", "")
    guarded = files(builder.built)
    assert set(guarded) == set(unguarded)
    assert guarded["build.ninja"] == unguarded["build.ninja"]


def test_guard_that_comes_late_and_goes(builder):
    code = """
        import torch.utils.cpp_extension as cpp
        before = cpp._get_cuda_arch_flags
        import cudaguard
        cudaguard.install("strict")
        assert cpp._get_cuda_arch_flags is not before
        cudaguard.install("strict")
        cudaguard.uninstall()
        assert cpp._get_cuda_arch_flags is before
        del cpp._get_cuda_arch_flags  # a torch with other names
        cudaguard.install()
        print(cudaguard.status().findings)
        """
    done = builder.child.python(code, python=str(builder.python), env=builder.environment())
    assert (done.stdout, done.stderr) == ("()\n", "")
