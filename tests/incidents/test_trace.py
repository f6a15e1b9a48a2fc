"""``cudaguard trace`` with real packages: torch, and tensorflow with triton, which aborts."""

from __future__ import annotations

import signal

import pytest

from ..documents import valid
from .marks import ON_LINUX
from .pins import TENSORFLOW, TORCH

pytestmark = ON_LINUX
CRASHES = "import tensorflow\nimport triton._C.libtriton\n"


@pytest.fixture
def trace(child, root):
    """Traces a program; returns the document and the status."""

    def run(python, program, name, *options):
        path = child.write("main.py", program)
        output = ("-o", f"{name}.json")
        command = (python, "-m", "cudaguard", "trace", *output, *options, path)
        done = child.command(*command, env={"PYTHONPATH": str(root)}, timeout=400, check=False)
        text = (child.folder / f"{name}.json").read_text(encoding="utf-8")
        return valid("trace", text), done.returncode

    return run


def steps(document):
    return {step["name"]: step for step in document["processes"][0]["steps"]}


def test_import_torch(trace, cached_environment):
    document, status = trace(cached_environment(*TORCH), "import torch\n", "torch")
    found = steps(document)
    assert (status, document["summary"]["initializer"]) == (0, None)
    names = {library["name"]: library for library in found["torch._C"]["mapped"]}
    assert names["libtorch_cpu.so"]["package"].startswith("torch 2.")
    assert found["torch._C"]["importing"][:2] == ["__main__", "torch"]
    assert found["torch"]["where"].endswith("main.py:1")
    assert found["torch"]["at"] < found["torch._C"]["at"]


def test_import_of_a_torch_with_cuda(trace, cuda_torch):
    document, status = trace(cuda_torch, "import torch\n", "torch")
    packages = {
        library["package"].partition(" ")[0]
        for step in document["processes"][0]["steps"]
        for library in step["mapped"]
    }
    assert status == 0
    assert {"torch", "nvidia-cublas", "nvidia-cuda-runtime"} <= packages


def test_crash(trace, cached_environment):
    python = cached_environment(*TENSORFLOW)
    crashed, status = trace(python, CRASHES, "b")
    assert (status, crashed["ended"]["signal"]) == (-signal.SIGABRT, "SIGABRT")
    assert crashed["summary"]["died_in"] == "triton._C.libtriton"
    assert steps(crashed)["triton._C.libtriton"]["state"] == "unfinished"
    ids = [step["id"] for step in crashed["processes"][0]["steps"] if step["kind"] == "finding"]
    assert "CG002" in ids

    _, status = trace(python, CRASHES, "a", "--mode", "fix")
    assert status == 0
