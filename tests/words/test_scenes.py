"""Messages that no test hears where they are said: each is worded here from sample facts.

The gallery compares them (see ``tests/gallery.py``), and marks them as samples.
"""

from __future__ import annotations

import pytest

from cudaguard.core import messages as core
from cudaguard.features.array_interface import messages as arrays
from cudaguard.features.builds.messages import builds
from cudaguard.features.builds.messages import checks as build_checks
from cudaguard.features.cuda_graphs import messages as graphs
from cudaguard.features.duplicate_libraries import messages as duplicates
from cudaguard.features.duplicate_libraries.checks import Served
from cudaguard.features.gpu_architectures.messages import checks as drivers
from cudaguard.features.symbol_scope import messages as scope

LOCK = "/home/me/.cache/torch_extensions/py311_cu130/fused_adam/lock"
NVCC = "/usr/local/cuda-12.4/bin/nvcc"
SCENES = {
    "array_interface.ordered": lambda: arrays.ordered(
        "numba.cuda.DeviceNDArray", "warp", "the host waited for stream 7"
    ),
    "builds.no_such_entry": lambda: builds.no_such_entry("CG032", "torch.utils.file_baton"),
    "builds.no_toolkit": lambda: builds.no_toolkit("13.0", ("/opt/cuda",)),
    "builds.no_toolkit-nowhere": lambda: builds.no_toolkit("13.0", ()),
    "builds.other_cuda": lambda: builds.other_cuda(NVCC, "PATH", "12.4", "13.0", is_jit=True),
    "builds.other_cuda-setup": lambda: builds.other_cuda(
        NVCC, "CUDA_HOME", "12.4", "13.0", is_jit=False
    ),
    "builds.out_of_date": lambda: builds.out_of_date(
        LOCK.replace("lock", "fused_adam.so"), ("built for torch 2.9.1, this is 2.13.0",),
        is_rebuilt=False,
    ),
    "builds.stale_lock": lambda: builds.stale_lock(LOCK, 7300, is_removed=False),
    "builds.stale_lock-removed": lambda: builds.stale_lock(LOCK, 7300, is_removed=True),
    "builds.torch_without_cuda": lambda: builds.torch_without_cuda("2.13.0+cpu"),
    "builds.waiting": lambda: builds.waiting(
        LOCK, "held", ((4242, "python setup.py build_ext"),), ""
    ),
    "builds.waiting-unknown": lambda: builds.waiting(
        LOCK, "hidden", (), builds.why_unknown("hidden", "", (4242,))
    ),
    "builds.checks.no_toolkit": lambda: build_checks.no_toolkit("13.0"),
    "builds.old_lock": lambda: build_checks.old_lock(
        LOCK, builds.why_unknown("foreign", "", ()), 0.0
    ),
    "core.no_journal": lambda: core.no_journal(
        "/logs/cudaguard.jsonl", FileNotFoundError(2, "No such file or directory")
    ),
    "cuda_graphs.not_copied": lambda: graphs.not_copied("transformers.DynamicCache"),
    "cuda_graphs.stale": lambda: graphs.stale("infer.py:12", (1, 256), "infer.py:13"),
    "duplicate_libraries.two_rivals": lambda: duplicates.two_rivals(
        "LLVM's OpenMP",
        Served("/env/lib/libomp.so", {"faiss": "/env/faiss.so"}, (5,), "llvm-openmp"),
        Served("/env/lib/libiomp5.so", {"mkl": "/env/mkl.so"}, (5,), "intel-openmp"),
    ),
    "gpu_architectures.checks.devices_closed": lambda: drivers.devices_closed(
        ("/dev/nvidia0", "/dev/nvidiactl")
    ),
    "gpu_architectures.checks.module_not_loaded": lambda: drivers.module_not_loaded(2),
    "gpu_architectures.checks.no_library": lambda: drivers.no_library("580.65.06"),
    "gpu_architectures.checks.old_nvrtc": lambda: drivers.old_nvrtc(
        "/opt/cuda-12.0/lib64/libnvrtc.so.12", "12.0", "12.8"
    ),
    "gpu_architectures.checks.torch_without_cuda": lambda: drivers.torch_without_cuda(
        "2.13.0+cpu", "580.65.06"
    ),
    "symbol_scope.static_runtime": lambda: scope.static_runtime(
        "nvcv", "/env/nvcv/libnvcv_types.so", ("std::ctype<char>::id",), "train.py:3"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_sample(name):
    assert SCENES[name]().remedy or name in (
        "array_interface.ordered",
        "builds.no_such_entry",
        "builds.stale_lock-removed",
    )
