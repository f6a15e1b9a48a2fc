"""DataLoader workers are forked from a process that has initialized CUDA: normal, and silent.

The torch is a real one without CUDA, the driver is the stub.
"""

from __future__ import annotations

import sys

import pytest

from ..processes import where
from .marks import ON_LINUX
from .pins import TORCH

pytestmark = ON_LINUX


PROGRAM = '''
import ctypes
import sys
import traceback

import cudaguard

cudaguard.install(sys.argv[1])

import torch
from torch.utils.data import DataLoader, Dataset


def ids():
    return " ".join(finding.id for finding in cudaguard.status().findings)


class Squares(Dataset):
    """Says for each number which findings its worker knows of."""

    def __len__(self):
        return 8

    def __getitem__(self, number):
        {touch}
        return torch.full((2, 2), number).square(), ids()


cu = ctypes.CDLL("libcuda.so.1")
assert cu.cuInit(0) == 0
context = ctypes.c_void_p()
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
lazy_init = torch.cuda._lazy_init
loader = DataLoader(
    Squares(), batch_size=2, num_workers=2, multiprocessing_context="fork", persistent_workers=True
)
for _ in range(2):
    total, known = 0, set()
    try:
        for numbers, findings in loader:  # here
            total += int(numbers.sum())
            known.update(findings)
    except (AssertionError, RuntimeError) as error:
        frames = "".join(traceback.format_tb(error.__traceback__))
        print(type(error).__name__, "CUDA" in str(error), "cuda_init" in frames)
        break
    print(total, *sorted(known), sep="|")
print(torch.cuda._lazy_init is lazy_init)
print(ids())
print(sum(event.kind == "fork" for event in cudaguard.status().events))
'''


@pytest.fixture
def run(child, cached_environment, root, driver_stubs):
    """Runs the program in a mode; `touch` is what a worker does first."""

    def run(mode, touch="pass", **variables):
        path = child.write("program.py", PROGRAM.format(touch=touch))
        env = {**driver_stubs.environment(), "PYTHONPATH": str(root), **variables}
        return child.command(cached_environment(*TORCH), path, mode, env=env, timeout=300)

    return run


@pytest.mark.parametrize("mode", ["off", "warn", "fix", "strict"])
def test_workers_that_do_not_use_cuda_are_none_of_our_business(run, mode):
    done = run(mode, PYTHONWARNINGS="default")
    assert done.stderr == ""
    forks, findings = ("0", "") if mode == "off" else ("2", "CG814 CG815")
    lines = done.stdout.splitlines()
    assert lines == [f"560|{findings}", f"560|{findings}", "True", findings, forks]


def test_error_of_a_worker_is_told_where_the_loader_raises_it_anew(run, child):
    """The error is the driver's: error 3, in the words of torch."""
    touch = "status = cu.cuMemGetInfo_v2(None, None); assert not status, 'CUDA error: {}'"
    touch = touch.format("initialization error' if status == 3 else 'no GPU")
    done = run("fix", touch)
    ours = sys.version_info < (3, 11)  # whose tracebacks show what has called torch's function
    assert f"AssertionError True {ours}" in done.stdout
    (warning,) = (line for line in done.stderr.splitlines() if "Warning: " in line)
    here = where(child.folder / "program.py", "here")
    assert warning.startswith(f"{here}: ForkWarning: [CG818] A forked worker used")
    assert "the worker: AssertionError: CUDA error: initialization error" in done.stderr
    assert done.stdout.splitlines()[-2].split() == ["CG814", "CG815", "CG818"]


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_error_of_a_worker_is_not_told_where_nothing_is(run, mode):
    done = run(mode, "raise RuntimeError('Cannot re-initialize CUDA in forked subprocess')")
    assert done.stderr == ""
    assert "RuntimeError True" in done.stdout


def test_worker_that_uses_torch_cuda_is_told_in_its_log(run, child):
    touch = "import logging; logging.basicConfig(filename='log'); torch.cuda.init()"
    done = run("fix", touch)
    assert done.stderr == ""
    assert "AssertionError True" in done.stdout  # torch's own: not compiled with CUDA
    log = (child.folder / "log").read_text()
    assert "[CG818] torch initializes CUDA at " in log
    assert "code that cudaguard did not watch initialized CUDA" in log
