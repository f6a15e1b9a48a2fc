"""Forks after CUDA was initialized: silent, until a child uses CUDA all the same."""

from __future__ import annotations

import pytest

from ...processes import sabotaged
from .program import INITIALIZE, LOAD, on_both_drivers

# The main process initializes CUDA by a watched import; `report` prints what a child was told.
START = """
import ctypes
import logging
import multiprocessing

class Lines(logging.Handler):
    def emit(self, record):
        print(record.levelname, record.getMessage().splitlines()[0], flush=True)
logging.getLogger("cudaguard").addHandler(Lines())

def report():
    for finding in found("CG818"):
        print(finding.severity, *finding.evidence)

def idle(*_):
    import json, os
    json.dumps(os.getpid())
    print("idle", ids() if __name__ == "__main__" else "", flush=True)
"""
INITIALIZED = START + "cudaguard.install()\nimport kaolin  # init\n"


@pytest.fixture
def run(program):
    """Runs code in a process that has initialized CUDA by importing kaolin."""
    program.module("kaolin", INITIALIZE)
    return lambda code, *arguments, **how: program.run(INITIALIZED + code, *arguments, **how)


# --- children that do without CUDA: not a word --------------------------------------------------


@on_both_drivers
def test_nothing_is_said_at_the_fork_nor_by_a_child_that_does_not_use_cuda(run, program):
    ran = run("in_child(idle)\nin_child(lambda: in_child(idle))\nprint(ids())")
    assert (ran.out, ran.err) == (["idle ['CG814']"] * 2 + ["['CG814']"], "")


MULTIPROCESSING = """
{start}
def work(number):
    return number * number
if __name__ == "__main__":
    cudaguard.install()
    import kaolin
    context = multiprocessing.get_context({method!r})
    process = context.Process(target=idle)
    process.start()
    process.join()
    print(process.exitcode)
    with context.Pool(2) as pool:
        print(pool.map(work, [1, 2, 3]))
        pool.close()
        pool.join()
    print(ids(), len(events("fork")))
"""


@on_both_drivers
@pytest.mark.parametrize(("method", "forks"), [("fork", 3), ("spawn", 0), ("forkserver", 0)])
def test_workers_of_multiprocessing_that_do_not_use_cuda(program, method, forks):
    program.module("kaolin", INITIALIZE)
    ran = program.run(MULTIPROCESSING.format(start=START, method=method))
    assert ran.err == ""
    assert ran.out[0].startswith("idle")
    assert ran.out[1:] == ["0", "[1, 4, 9]", f"['CG814'] {forks}"]


def test_subprocess_is_no_fork(run):
    ran = run(
        """
        import subprocess
        command = [sys.executable, "-c", "print('other')"]
        print(subprocess.check_output(command, text=True).strip())
        print(subprocess.check_output(command, text=True, preexec_fn=lambda: None).strip())
        print(os.popen("echo shell").read().strip(), os.system("true"))
        print(len(events("fork")), ids())  # of preexec_fn
        """.replace("\n        ", "\n")
    )
    assert (ran.out, ran.err) == (["other", "other", "shell 0", "1 ['CG814']"], "")


# --- children that use it -----------------------------------------------------------------------


TOUCHES = {
    "ctypes": ("driver()", "ctypes loads libcuda"),
    "a path": ("ctypes.CDLL([l.split()[-1] for l in open('/proc/self/maps') if 'libcuda' in l][0])",
               "ctypes loads libcuda"),
    "an import that fails": (
        "try:\n        import spconv\n    except RuntimeError: print('failed')",
        "CUDA is used",
    ),
}  # fmt: skip


@on_both_drivers
@pytest.mark.parametrize(
    ("touch", "method"),
    [("ctypes", "os.fork"), ("a path", "multiprocessing"), ("an import that fails", "os.fork")],
)
def test_child_that_uses_cuda_is_told_once_who_initialized_it_where(run, program, touch, method):
    program.module("spconv", "raise RuntimeError('CUDA error: initialization error')")
    code, how = TOUCHES[touch]
    start = (
        "in_child(work)"
        if method == "os.fork"
        else "p = multiprocessing.get_context('fork').Process(target=work); p.start(); p.join()"
    )
    ran = run(
        f"""
def work():
    {code}
    report()
    sys.stdout.flush()
{start}
print(ids())
"""
    )
    finding, parent = (line for line in ran.out if line != "failed")
    (warning,) = ran.warnings
    assert f"ForkWarning: [CG818] {how} at {program.folder}" in warning
    assert "forked after CUDA was initialized" in warning
    assert finding.startswith("warning in parent process ")
    assert f"kaolin initialized CUDA at {program.where('init')}" in finding
    assert parent == "['CG814']"


@on_both_drivers
def test_child_whose_parent_has_gone_speaks(run, program):
    """A daemon: nobody else would tell."""
    ran = run(
        """
parent = os.getpid()
if os.fork():
    os._exit(0)
import time
while os.getppid() == parent:
    time.sleep(0.01)
driver()
"""
    )
    assert ran.warned == ["CG818"]
    assert "ForkWarning" in ran.err
    assert program.where("init") in ran.err


@pytest.mark.parametrize(("mode", "said"), [("off", 0), ("observe", 0), ("strict", 1)])
def test_modes(run, mode, said):
    ran = run(
        f"""
cudaguard.uninstall()
cudaguard.install({mode!r})
driver()
def work():
    driver()
    print(ids().count("CG818"))
in_child(work)
"""
    )
    assert ran.warned == ["CG818"] * said
    assert ran.out[-1] == ("0" if mode == "off" else "1")


def test_failing_import_passes_unchanged(run, program):
    program.module("spconv", "raise RuntimeError('CUDA error: initialization error')  # raised")
    ran = run(
        """
def work():
    import traceback
    try:
        import spconv
    except RuntimeError as error:
        print([frame.filename for frame in traceback.extract_tb(error.__traceback__)][-1])
        print(error, error.__cause__, error.__context__)
in_child(work)
"""
    )
    assert ran.out == [
        str(program.folder / "spconv.py"),
        "CUDA error: initialization error None None",
    ]


@on_both_drivers
def test_child_that_was_forked_before_the_initialization_may_use_cuda(program):
    program.module("kaolin", INITIALIZE)
    ran = program.run(
        START
        + """
cudaguard.install()
driver()
def work():
    import kaolin
    driver()
    print(ids(), driver().cuInit(0))
in_child(work)
import kaolin
in_child(idle)
"""
    )
    assert (ran.out, ran.err) == (["['CG814'] 0", "idle ['CG814']"], "")


# --- torch, whose first use of CUDA is a function of its own ------------------------------------

TORCH = """
class version: cuda = {cuda!r}
class cuda:
    def _lazy_init():
        "torch's own text"
        if cuda.fails: raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        return print("initialized")
    fails = False
"""
LAZY = """
original = torch.cuda._lazy_init
def is_untouched():
    same = torch.cuda._lazy_init is original
    assert torch.cuda._lazy_init.__doc__ == "torch's own text"
    return same and not any("_lazy_init" in item for item in cudaguard.status().changes)
"""


def test_first_use_of_torch_in_a_child_is_told_once(run, program):
    program.module("torch", TORCH.format(cuda="12.4"))
    ran = run(
        f"""
import torch
{LAZY}
print(is_untouched())
def work():
    torch.cuda.fails = True
    attempt(torch.cuda._lazy_init)
    attempt(torch.cuda._lazy_init)
    report()
in_child(work)
print(is_untouched())
torch.cuda._lazy_init()
"""
    )
    untouched, first, second, finding, still, called = ran.out
    assert (untouched, still, called) == ("True", "True", "initialized")
    (warning,) = ran.warnings
    assert "[CG818] torch initializes CUDA at " in warning
    assert first == second == "RuntimeError Cannot re-initialize CUDA in forked subprocess"
    assert program.where("init") in finding


def test_function_of_torch_is_untouched_without_a_fork_after_initialization(program):
    program.module("torch", TORCH.format(cuda="12.4"))
    code = f"""
{START}
cudaguard.install()
driver()
import torch
{LAZY}
in_child(lambda: print(is_untouched()))
driver().cuInit(0)
cudaguard.status()
print(is_untouched())
cudaguard.uninstall()
print(is_untouched())
"""
    ran = program.run(code)
    assert (ran.out, ran.err) == (["True"] * 3, "")


@pytest.mark.parametrize("torch", ["", "cuda = None", "class cuda: pass", "import nothing_there"])
def test_torch_of_another_shape_does_no_harm(run, program, torch):
    program.module("torch", torch)
    ran = run(
        """
try:
    import torch
except ImportError:
    pass
in_child(idle)
def work():
    try:
        import torch
    except ImportError:
        pass
    print(ids())
in_child(work)
"""
    )
    assert (ran.out, ran.err) == (["idle ['CG814']", "['CG814']"], "")


# --- what stays in the process ------------------------------------------------------------------


def test_no_audit_hook_and_at_fork_functions_once_for_all_time(program):
    """An audit hook makes each audited call of the process run Python: id(), deepcopy ..."""
    program.module("kaolin", LOAD)
    ran = program.run(
        """
hooks = []
def counting(register):
    return lambda **functions: hooks.append(sorted(functions)) or register(**functions)
import ctypes
cudaguard.install()
from cudaguard.files import os as own
own.register_at_fork = counting(own.register_at_fork)
sys.addaudithook(lambda event, _: event == "sys.addaudithook" and hooks.append(event))
import kaolin
for _ in range(3):
    cudaguard.uninstall()
    cudaguard.install()
    driver()
print(hooks)
"""
    )
    assert (ran.out, ran.err) == (["[['after_in_child', 'before']]"], "")


def test_nothing_is_done_after_uninstall(run, program):
    program.module("torch", TORCH.format(cuda="12.4"))
    ran = run(
        f"""
import torch
{LAZY}
before = len(events())
cudaguard.uninstall()
before = len(events())
from cudaguard.features.cuda_init.detector import CudaDetector
for name in ("_quietly", "look_at_environment"):
    setattr(CudaDetector, name, lambda *_: print("called"))
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
del os.environ["CUDA_VISIBLE_DEVICES"]
def work():
    driver()
    print(is_untouched(), ids(), len(events()) - before)
in_child(work)
print(ids(), len(events()) - before)
"""
    )
    assert (ran.out, ran.err) == (["True ['CG814'] 0", "['CG814'] 0"], "")


def test_failure_of_the_guard_breaks_no_fork(run):
    broken = sabotaged("cudaguard.features.cuda_init.detector", "CudaDetector.check_driver")
    ran = run(broken + "in_child(lambda: print('child'))\nprint('parent', len(ids()))")
    assert ran.status == 0
    assert ran.out[:2] == ["child", "parent 2"]
    assert "Traceback" not in ran.err
    assert "ZeroDivisionError" in ran.err
    assert "Exception ignored" not in ran.err
