"""decord and a torch extension that is compiled on the fly: a silent wrong sum, in both orders.

The extension iterates a hash set. Its inline functions, compiled without optimization as torch's
JIT does, bind to decord's old copies of the same names. Importing torch first does not help.
"""

from __future__ import annotations

import os
import textwrap
import zipfile

import pytest

from .marks import WITH_COMPILER
from .pins import TORCH

pytestmark = WITH_COMPILER

ORDER = """
import contextlib, sys

door = contextlib.nullcontext()
if "install" in sys.argv:
    import cudaguard; cudaguard.install()
if "guard" in sys.argv:
    import cudaguard; door = cudaguard.guard()
with door:
    for name in sys.argv[1].split(","):
        __import__(name)
"""
SUM = '''
import torch
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <unordered_set>
int64_t distinct_sum(at::Tensor values) {
    auto numbers = values.accessor<int64_t, 1>();
    std::unordered_set<int64_t> distinct;
    for (int64_t i = 0; i < values.size(0); ++i) distinct.insert(numbers[i]);
    int64_t sum = 0;
    for (auto number : distinct) sum += number;
    return sum;
}
"""
module = load_inline("distinct_sum", cpp_sources=source, functions=["distinct_sum"])
print("sum", module.distinct_sum(torch.tensor([1, 2, 3, 3, 2, 1])))
'''
PROGRAM = ORDER + SUM


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """One build serves all orders: the same binary is right or wrong by order alone."""
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture
def total(child, cached_environment, root, built, path_to_build):
    """Returns the sum that the program prints."""

    def total(order, door="", **variables):
        python = cached_environment(*TORCH)
        path = child.write("program.py", PROGRAM)
        env = {
            "PATH": f"{python.parent}{os.pathsep}{path_to_build}",
            "PYTHONPATH": str(root),
            "TORCH_EXTENSIONS_DIR": str(built),
            **variables,
        }
        start = ["-m", "cudaguard", "run"] if door == "run" else []
        done = child.command(python, *start, path, order, door, env=env, timeout=600)
        return int(done.stdout.split("sum")[1])

    return total


def test_without_decord_the_sum_is_right(total):
    assert total("torch") == 6


@pytest.mark.parametrize("order", ["torch,decord", "decord,torch"])
def test_decord_makes_it_wrong_and_the_guard_right(total, order):
    assert total(order) != 6
    assert total(order, door="run", CUDAGUARD="strict") == 6


@pytest.mark.parametrize("door", ["install", "guard", "run"])
def test_every_door(total, door):
    assert total("decord,torch", door=door) == 6


def test_door_of_the_environment_variable(child, total, wheel, tmp_path):
    """The wheel is unpacked beside the packages, as only `site` reads its ``.pth`` file."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "unpacked")
    start = f"import site; site.addsitedir({str(tmp_path / 'unpacked')!r})"
    child.write("start/sitecustomize.py", start)
    path = os.pathsep.join((str(tmp_path / "start"), str(tmp_path / "unpacked")))
    assert total("decord,torch", CUDAGUARD="off", PYTHONPATH=path) != 6
    assert total("decord,torch", CUDAGUARD="fix", PYTHONPATH=path) == 6


def test_extension_that_is_imported_before_torch_gets_torch_first(
    child, cached_environment, root, built, total
):
    """libc10.so lies in torch's folder: the loader finds it once torch is imported."""
    assert total("torch") == 6  # builds it
    python = cached_environment(*TORCH)
    env = {"PYTHONPATH": f"{root}{os.pathsep}{built / 'distinct_sum'}"}
    code = """
        import distinct_sum
        import torch
        print("sum", distinct_sum.distinct_sum(torch.tensor([1, 2, 2])))
        """
    unguarded = child.python(code, python=str(python), env=env, check=False)
    assert unguarded.returncode == 1
    assert "libc10.so: cannot open shared object file" in unguarded.stderr
    command = [python, "-m", "cudaguard", "run", "--mode", "strict", "-c", textwrap.dedent(code)]
    assert child.command(*command, env=env).stdout == "sum 3\n"
