"""Builds with the real torch.utils.cpp_extension: unguarded they hang or fail, guarded they do not.

The extension is a few lines without torch's headers, which compiles in a moment.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import signal
import subprocess
import time

import pytest

from ..conftest import clean_environment
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
    from cudaguard.features.builds import repair
    repair.PATIENCE = 1
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

    def start(self, guard="guarded", **how):
        env = clean_environment(**self.environment(**how))
        return subprocess.Popen(
            [self.python, self.program(), guard], env=env, cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def compiler(self, code):
        """A C++ compiler that does something else first."""
        path = self.child.write("compiler", f'#!/bin/sh\n{code}\nexec g++ "$@"\n')
        path.chmod(0o755)
        return str(path)


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


def test_killed_builder(builder):
    """Its compiler goes on without it, and is waited for; then one of eight builds."""
    slow = builder.compiler('case "$*" in *small.o*) sleep 6 ;; esac')
    killed = builder.start("unguarded", CXX=slow)
    lock = builder.built / "lock"
    wait_until(lambda: (builder.built / "build.ninja").exists() and lock.exists())
    time.sleep(1)  # ninja has been started
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert lock.exists()
    waiting = [builder.start("unguarded"), *(builder.start() for _ in range(8))]
    try:
        told = [(*process.communicate(timeout=100), process.returncode) for process in waiting[1:]]
    finally:
        os.killpg(waiting[0].pid, signal.SIGKILL)
        waiting[0].communicate()
    assert [out.partition("\n")[0] for out, *_ in told] == ["answer 42"] * 8, told
    assert sum("CG885" in err for _, err, _ in told) == 1
    assert not lock.exists()


def test_unguarded_a_killed_builder_is_waited_for(builder):
    builder.load("unguarded")
    (builder.built / "lock").touch()
    os.utime(builder.built / "lock", (1, 1))
    waiter = builder.start("unguarded")
    with pytest.raises(subprocess.TimeoutExpired):
        waiter.communicate(timeout=20)
    os.killpg(waiter.pid, signal.SIGKILL)
    waiter.communicate()
    done = builder.load()
    assert done.stdout.startswith("answer 42\nCG032 ")
    assert "[CG885]" in done.stderr


def test_living_builder_is_waited_for(builder):
    slow = builder.compiler('case "$*" in *small.o*) sleep 12 ;; esac')
    living = builder.start("unguarded", CXX=slow)
    wait_until(lambda: (builder.built / "lock").exists())
    done = builder.load()
    assert living.communicate(timeout=60)[0] == "answer 42\n"
    assert done.stdout == "answer 42\n\n"
    assert (
        f"[CG886] This process waits for process {living.pid}, which holds the lock in"
        in done.stderr
    )


def test_guard_that_comes_late_and_goes(builder):
    code = """
        import torch.utils.cpp_extension as cpp
        from torch.utils.file_baton import FileBaton
        def now(): return FileBaton.try_acquire, cpp._get_cuda_arch_flags
        before = now()
        import cudaguard, pickle
        cudaguard.install("strict")
        assert not any(ours is theirs for ours, theirs in zip(now(), before))
        assert pickle.loads(pickle.dumps(cpp.FileBaton)) is cpp.FileBaton is FileBaton
        cudaguard.install("strict")
        cudaguard.uninstall()
        assert now() == before
        cudaguard.install(disable=["CG032"])
        assert [a is b for a, b in zip(now(), before)] == [True, False]
        """
    done = builder.child.python(code, python=str(builder.python), env=builder.environment())
    assert done.stderr == ""


def test_torch_whose_lock_ends_with_its_holder_is_left_alone(builder):
    """As from 2.14 on: it has another lock in place of FileBaton."""
    code = """
        import torch.utils.cpp_extension as cpp
        cpp.FileLock = cpp.FileBaton
        del cpp.FileBaton
        import cudaguard
        cudaguard.install()
        print(cudaguard.status().findings)
        """
    done = builder.child.python(code, python=str(builder.python), env=builder.environment())
    assert (done.stdout, done.stderr) == ("()\n", "")


def test_torch_with_other_names_is_left_alone(builder):
    code = """
        import torch.utils.cpp_extension as cpp
        del cpp._get_cuda_arch_flags
        original = cpp.FileBaton.try_acquire
        import cudaguard
        cudaguard.install()
        (finding,) = cudaguard.status().findings
        print(finding.id, finding.severity, finding.what)
        assert cpp.FileBaton.try_acquire is not original
        """
    done = builder.child.python(code, python=str(builder.python), env=builder.environment())
    assert done.stdout.startswith(
        "CG836 info cudaguard does not know torch.utils.cpp_extension._get_cuda_arch_flags"
    )
    assert done.stderr == ""


def wait_until(is_so):
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)
