"""A CUDA build of torch where there is neither a GPU nor a driver.

As on the login node of a cluster, and in the container where an extension is built.
"""

from __future__ import annotations

import os

import pytest

from ..features.extensions.test_accuracy import JUDGE, judged_rightly
from .marks import WITH_COMPILER

pytestmark = WITH_COMPILER

SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAFunctions.h>
int devices() { return c10::cuda::device_count(); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("devices", &devices); }
"""
# As setup.py has it done, for a compiler without CUDA's headers: those of the wheels.
BUILD = """
import glob, os, subprocess, sys, sysconfig
import torch
from torch.utils.cpp_extension import include_paths, library_paths
source, built = sys.argv[1:]
wheels = os.path.join(sysconfig.get_path("purelib"), "nvidia", "cu13")
subprocess.run([
    "g++", "-O0", "-shared", "-fPIC", "-std=c++20", "-DTORCH_EXTENSION_NAME=devices_ext",
    "-w", "-o", built, source, f"-I{wheels}/include", f"-I{sysconfig.get_path('include')}",
    *(f"-I{path}" for path in include_paths()), *(f"-L{path}" for path in library_paths()),
    "-lc10", "-lc10_cuda", "-ltorch", "-ltorch_cpu", "-ltorch_cuda", "-ltorch_python",
    f"-L{wheels}/lib", "-l:libcudart.so.13",
], check=True)
"""
USE = """
import sys
{guard}
try:
    import devices_ext
    print(devices_ext.devices())
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def run(child, root, cuda_torch, path_to_build):
    """Runs code with that torch; the checkout is importable."""

    def run(code, *arguments, **options):
        env = {"PYTHONPATH": f"{root}{os.pathsep}{child.folder}", "PATH": path_to_build}
        return child.python(code, *arguments, python=str(cuda_torch), env=env, **options)

    return run


@pytest.mark.parametrize("names", [(), ("torch",)], ids=["bare", "torch"])
def test_no_false_alarm_and_no_miss(run, cuda_torch, capsys, names):
    place = cuda_torch.parent.parent / "lib"
    lines = run(JUDGE, place, *names, timeout=900).stdout.splitlines()
    assert judged_rightly(lines, place, capsys) > 100


def test_extension_that_links_cuda_is_imported_before_torch(run, child):
    child.write("devices.cpp", SOURCE)
    run(BUILD, "devices.cpp", "devices_ext.so", timeout=900)
    refused = "ImportError libc10.so: cannot open shared object file: No such file or directory"
    assert run(USE.format(guard="")).stdout.strip() == refused
    assert run(USE.format(guard="import cudaguard; cudaguard.install()")).stdout.strip() == "0"
