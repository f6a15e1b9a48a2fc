"""``cudaguard run --timeout`` tells of a fork that waits for OpenMP's threads, and of no other."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig

import pytest

from cudaguard.system.processes import openmp_wait

from .test_run_deaths import run as run

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux")
    or platform.machine() != "x86_64"
    or shutil.which("gcc") is None
    or not os.path.exists("/proc/self/syscall"),
    reason="needs Linux on x86-64, whose libgomp makes its system calls itself, and GCC",
)
# Two threads also where there is one core.
SOURCE = """
#include <Python.h>
#include <omp.h>
#include <unistd.h>
static PyObject *total(PyObject *self, PyObject *args) {
    long n = 0;
    Py_BEGIN_ALLOW_THREADS
    #pragma omp parallel for reduction(+:n) num_threads(WIDTH)
    for (int i = 0; i < 1000; i++) n += i;
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(n);
}
static PyObject *slow(PyObject *self, PyObject *args) {
    Py_BEGIN_ALLOW_THREADS
    #pragma omp parallel num_threads(2)
    if (omp_get_thread_num()) sleep(60);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
static PyMethodDef functions[] = {
    {"total", total, METH_NOARGS, 0}, {"slow", slow, METH_NOARGS, 0}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "parallel", 0, -1, functions};
PyMODINIT_FUNC PyInit_parallel(void) { return PyModule_Create(&module); }
"""
FORKS = """
import os, parallel, signal, sys, threading, time
BEFORE
if os.fork() == 0:
    CHILD
    os._exit(0)
print("done", os.wait()[1], flush=True)
"""
CAUSE = "waits forever for OpenMP threads (libgomp) that only its parent has."


@pytest.fixture
def parallel(child):
    """Compiles an extension that computes with OpenMP; returns its folder."""

    def parallel(width="2"):
        source = child.write("parallel.c", SOURCE.replace("WIDTH", width))
        include = f"-I{sysconfig.get_path('include')}"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-fopenmp", include, source, "-o",
             child.folder / "parallel.so"], check=True,
        )  # fmt: skip
        return str(child.folder)

    return parallel


def forks(child, before, inside):
    return child.write("train.py", FORKS.replace("BEFORE", before).replace("CHILD", inside))


def test_fork_after_a_parallel_region_is_told_with_its_cause(child, parallel, run):
    """It hangs without us as well, which is what is explained."""
    env = {"PYTHONPATH": parallel()}
    path = forks(child, "parallel.total()", "signal.alarm(2); parallel.total()")
    assert child.command(sys.executable, path, env=env).stdout == f"done {int(signal.SIGALRM)}\n"
    path = forks(child, "parallel.total()", "parallel.total()")
    done, text, document = run(path, options=["--timeout", "2"], env=env)
    assert done.returncode == 124
    cause = document["cause"]
    assert cause["what"].startswith("The forked process ")
    assert cause["what"].endswith(CAUSE)
    assert "has 1 thread, which waits in libgomp" in cause["evidence"][0]
    assert cause["evidence"][0].endswith("which forked it, has 2")
    assert "libgomp.so" in cause["evidence"][1]
    assert document["command"].startswith("OMP_NUM_THREADS=1 python")
    assert "spawn or forkserver" in " ".join(text.split())


def test_what_is_advised_ends_it(child, parallel, run):
    env = {"PYTHONPATH": parallel("omp_get_max_threads()"), "OMP_NUM_THREADS": "2"}
    path = forks(child, "parallel.total()", "parallel.total()")
    _, _, document = run(path, options=["--timeout", "2"], env=env)
    assert document["cause"]["what"].endswith(CAUSE)
    done, _, _ = run(path, options=["--timeout", "30"], env={**env, "OMP_NUM_THREADS": "1"})
    assert (done.returncode, done.stdout) == (0, "done 0\n")
    path = forks(child, "", "parallel.total()")  # before the first parallel region
    done, _, _ = run(path, options=["--timeout", "30"], env=env)
    assert (done.returncode, done.stdout) == (0, "done 0\n")


def test_several_workers_are_told_together(child, parallel, run):
    path = child.write(
        "train.py",
        "import multiprocessing, parallel\nparallel.total()\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    pool.starmap(parallel.total, [(), ()], chunksize=1)\n",
    )
    _, _, document = run(path, options=["--timeout", "3"], env={"PYTHONPATH": parallel()})
    assert document["cause"]["what"].startswith("2 forked processes wait forever for OpenMP")


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        ("lock = threading.Lock(); lock.acquire(); parallel.total()", "lock.acquire()"),
        ("parallel.total()", "time.sleep(60)"),
        ("", "parallel.total(); parallel.slow()"),  # its own threads work
    ],
)
def test_forks_that_hang_for_another_reason_have_no_such_cause(
    child, parallel, run, before, inside
):
    path = forks(child, before, inside)
    _, text, document = run(path, options=["--timeout", "2"], env={"PYTHONPATH": parallel()})
    assert document["ended"]["kind"] == "timeout"
    assert "OpenMP" not in text


def test_process_that_is_gone_waits_for_nothing():
    assert openmp_wait(1 << 30) is None
    assert openmp_wait(os.getpid()) is None
