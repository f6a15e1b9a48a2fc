"""Known errors that pass: a forked process has used CUDA, here or in a worker."""

from __future__ import annotations

import sys

import pytest

from cudaguard.features.cuda_init.known_errors import line_of_fork

from ...processes import where
from .program import INITIALIZE

TEXTS = {
    "torch": "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing",
    "numba": "CUDA initialized before forking",
    "the runtime": "CUDA error: initialization error",
    "numba's driver": "[3] Call to cuMemGetInfo results in CUDA_ERROR_NOT_INITIALIZED",
    "PyCUDA": "cuInit failed: initialization error",
    "CuPy": "cudaErrorInitializationError: initialization error",
}
START = "cudaguard.install()\nimport ctypes\nimport kaolin  # init\n"


@pytest.fixture
def run(program):
    """Runs code in a process that has initialized CUDA by importing kaolin."""
    program.module("kaolin", INITIALIZE)
    return lambda code, *arguments, **how: program.run(START + code, *arguments, **how)


BLOCK = """
def fail():
    raise RuntimeError({text!r})  # fail
def work():
    try:
        with cudaguard.guard():
            fail()
    except RuntimeError as error:
        print(str(error) == {text!r})
    for finding in found("CG818"):
        print(finding.what, *finding.evidence, sep="|")
"""


@pytest.mark.parametrize("text", TEXTS.values())
def test_texts_that_tell_of_a_fork(text):
    assert line_of_fork(f"RuntimeError: {text}\nand more") == f"RuntimeError: {text}"


@pytest.mark.parametrize("text", ["torch", "the runtime"])
def test_error_that_leaves_a_block_in_a_forked_process(run, program, text):
    ran = run(BLOCK.format(text=TEXTS[text]) + "in_child(work)\n")
    passed, told = ran.out
    assert passed == "True"
    what, first, said = told.split("|")
    assert what == (
        f"CUDA is used at {program.where('fail')} in a process forked after CUDA was initialized."
    )
    assert first.endswith(f"kaolin initialized CUDA at {program.where('init')}")
    assert said == TEXTS[text]
    assert ran.warned == ["CG818"]


def test_texts_of_other_errors():
    for text in ("CUDA out of memory", "initialization error", "CUDA error: invalid argument", ""):
        assert line_of_fork(text) == ""


def test_error_of_the_process_itself_is_not_blamed_on_a_worker(run):
    ran = run(BLOCK.format(text=TEXTS["the runtime"]) + "in_child(lambda: None)\nwork()\n")
    assert (ran.out, ran.err) == (["True"], "")


def test_error_of_a_worker_that_is_raised_anew_in_the_parent_is_told_there_once(run, program):
    ran = run(
        """
        import concurrent.futures, multiprocessing
        cu = driver()
        def work(number):
            if status := cu.cuMemGetInfo_v2(None, None):
                raise RuntimeError({0: "", 3: "CUDA error: initialization error"}[status])
        context = multiprocessing.get_context("fork")
        for _ in range(2):
            try:
                with cudaguard.guard(), concurrent.futures.ProcessPoolExecutor(1, context) as pool:
                    print(list(pool.map(work, [1])))
            except RuntimeError as error:
                print(error)
        print(ids())
        """.replace("\n        ", "\n")
    )
    assert ran.out == ["CUDA error: initialization error"] * 2 + ["['CG814', 'CG818']"]
    (warning,) = ran.warnings
    where = f"kaolin had initialized it at {program.where('init')}."
    assert f"[CG818] A forked worker used CUDA, but {where}" in warning


# --- cudaguard run: errors that end the program ---------------------------------------------------

UNCAUGHT = """
import ctypes
import sys
import os
import kaolin
process = os.fork()
if process:
    status = os.waitpid(process, 0)[1]
    sys.exit(os.WEXITSTATUS(status))
raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")  # here
"""


@pytest.fixture
def launch(program):
    """Runs a script under the launcher."""
    program.module("kaolin", INITIALIZE)

    def launch(code, *, env=None, check=False):
        path = program.child.write("script.py", code)
        variables = {**program.stubs.environment(), **(env or {})}
        return program.child.command(
            sys.executable, "-m", "cudaguard", "run", path, env=variables, check=check
        )

    return launch


def test_uncaught_error_is_told_of_behind_its_traceback(launch, program):
    done = launch(UNCAUGHT)
    assert done.returncode == 1
    traceback, _, told = done.stderr.partition("ForkWarning: [CG818] CUDA is used at ")
    here = where(program.folder / "script.py", "here")
    assert told.startswith(f"{here} in a process forked")
    assert "\nRuntimeError: Cannot re-initialize CUDA in forked subprocess\n" in traceback


def test_uncaught_error_that_is_none_of_our_business_is_printed_as_ever(launch, child):
    code = "import ctypes, kaolin\nraise ValueError('x')\n"
    done = launch(code)
    plain = child.command(
        sys.executable, child.folder / "script.py", check=False,
        env={"CUDAGUARD": "off", "LD_LIBRARY_PATH": ""},
    )  # fmt: skip
    assert "libcuda" in plain.stderr  # there is no driver without the stubs
    assert done.stderr.endswith("raise ValueError('x')\nValueError: x\n")
    assert "cudaguard" not in done.stderr


WORKER = """
import multiprocessing, os, sys, kaolin  # init
def work():
    if sys.argv[1:]:
        raise RuntimeError("cuInit failed: initialization error")
    os.abort()  # as C++ does on an error that nobody catches
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
{then}
"""


def test_forked_worker_that_dies_is_told_with_where_cuda_was_initialized(launch, program):
    """PyCUDA, TensorFlow: multiprocessing has printed the error, or the child has aborted."""
    done = launch(WORKER.format(then=""))
    after = "; forked after CUDA was initialized, at script.py:2."
    assert f"crashed (SIGABRT) in work, at script.py:6{after}" in done.stderr
    done = launch(WORKER.format(then="").replace("sys.argv[1:]", "True"))
    assert f"ended with RuntimeError in work, at script.py:5{after}" in done.stderr
    assert done.stderr.count("ForkWarning: [CG818]") == 1
    done = launch(WORKER.format(then="raise RuntimeError(f'{worker.pid} failed')"))
    assert "a forked process cannot use CUDA that its parent has initialized" in done.stderr
    done = launch(WORKER.format(then="").replace("os.abort()", "pass"))
    assert (done.returncode, done.stderr) == (0, "")


BINDINGS = """
import ctypes
c = ctypes.CDLL(None)
c.dlopen.restype, c.dlsym.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
c.dlsym.restype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
init = lambda: c.dlsym(c.dlopen(b"libcuda.so.1", 2), b"cuInit")(0)
"""
SERVER = """import os, cuda.bindings.driver as cuda
{0}
if not os.fork():
    os._exit(3)
os._exit(os.wait()[1] >> 8 if {1} else 0)
"""


@pytest.mark.parametrize(("call", "fails"), [("cuda.init()", 1), ("cuda.init()", 0), ("", 1)])
def test_fork_that_caught_the_error_of_cuda_which_a_call_had_brought(launch, program, call, fails):
    """gunicorn --preload: the worker logs its error and exits, and so does the server."""
    program.module("cuda.bindings.driver", BINDINGS)
    done = launch(SERVER.format(call, fails))
    said = "ended with status 3 after it was forked, at script.py:3; forked after CUDA was init"
    assert (said in done.stderr) == bool(call and fails)
    assert done.stderr or not (call and fails)
