"""Messages that no test hears where they are said: each is worded here from sample facts.

The gallery compares them (see ``tests/gallery.py``), and marks them as samples.
"""

from __future__ import annotations

import pytest

from cudaguard.core import findings as core
from cudaguard.features.array_interface import findings as arrays
from cudaguard.features.cuda_graphs import findings as graphs
from cudaguard.features.duplicate_libraries import findings as duplicates
from cudaguard.features.duplicate_libraries.checks import Served
from cudaguard.features.symbol_scope import findings as scope

SCENES = {
    "array_interface.ordered": lambda: arrays.ordered(
        "numba.cuda.DeviceNDArray", "warp", "the host waited for stream 7"
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
    "symbol_scope.static_runtime": lambda: scope.static_runtime(
        "nvcv", "/env/nvcv/libnvcv_types.so", ("std::ctype<char>::id",), "train.py:3"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_sample(name):
    assert SCENES[name]().remedy or name in ("array_interface.ordered",)
