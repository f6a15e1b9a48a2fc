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

# The first word names what is imported in turn; `guard` in it puts the guard up.
ORDER = """
import contextlib, sys

def install():
    import cudaguard; cudaguard.install()

door = contextlib.nullcontext()
if "block" in sys.argv:
    import cudaguard; door = cudaguard.guard()
with door:
    for name in sys.argv[1].split(","):
        install() if name == "guard" else __import__(name)
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
def run(child, cached_environment, root, built, path_to_build):
    """Runs pieces of code behind `ORDER`; returns the lines of output, and stderr."""

    def run(order, *code, door="", **variables):
        python = cached_environment(*TORCH)
        path = child.write("program.py", "".join((ORDER, *code)))
        env = {
            "PATH": f"{python.parent}{os.pathsep}{path_to_build}",
            "PYTHONPATH": str(root),
            "TORCH_EXTENSIONS_DIR": str(built),
            **variables,
        }
        start = ["-m", "cudaguard", "run"] if door == "run" else []
        done = child.command(python, *start, path, order, door, env=env, timeout=600)
        return done.stdout.splitlines(), done.stderr

    return run


@pytest.fixture
def total(run):
    """Returns the sum that the program prints."""
    return lambda order, **how: int(run(order, SUM, **how)[0][-1].removeprefix("sum "))


def test_without_decord_the_sum_is_right(total):
    assert total("torch") == 6


@pytest.mark.parametrize("order", ["torch,decord", "decord,torch"])
def test_decord_makes_it_wrong_and_the_guard_right(total, order):
    assert total(order) != 6
    assert total(order, door="run", CUDAGUARD="strict") == 6


@pytest.mark.parametrize(
    ("order", "door"),
    [("guard,decord,torch", ""), ("decord,torch", "block"), ("decord,torch", "run")],
)
def test_every_door(total, order, door):
    assert total(order, door=door) == 6


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


# --- the guard comes after decord: what is loaded from then on is right all the same --------------

# What decord is asked for goes through names that must not be hidden.
DECORD = """
import decord
print("registry", len(decord._ffi.function.list_global_func_names()))
try:
    decord.VideoReader("missing.mp4")
except Exception as error:
    print("error", type(error).__name__, "missing.mp4" in str(error))
"""
SAID = """
import cudaguard
print(*(f"{found.id} {found.what}" for found in cudaguard.status().findings))
print(*cudaguard.status().changes, sep="\\n")
"""
LATE = ["torch,decord,guard", "decord,torch,guard", "decord,guard,torch"]


@pytest.mark.parametrize("order", LATE)
def test_guard_that_comes_after_decord_makes_the_sum_right(run, order):
    (green, named, *changes), err = run(order, SUM, SAID)
    assert green == "sum 6"
    assert sum(line.startswith("distinct_sum: bound to its own") for line in changes) == 1
    # Those who were bound in between cannot be helped, and are named.
    counted = "CG812" in named, "libtorch" in named, err.count("Warning: [")
    assert counted == (order == "decord,torch,guard",) * 3


@pytest.mark.parametrize("order", [*LATE, "decord,guard", "guard,decord"])
def test_decord_is_whole_afterwards(run, order):
    unguarded, _ = run(order.replace("guard", "json"), DECORD)
    registry, error = unguarded
    assert int(registry.split()[1]) > 0
    assert error == "error RuntimeError True"
    assert run(order, DECORD)[0] == unguarded
