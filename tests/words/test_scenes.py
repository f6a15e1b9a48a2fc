"""Messages that no test hears where they are said: each is worded here from sample facts.

The gallery compares them (see ``tests/gallery.py``), and marks them as samples.
"""

from __future__ import annotations

import time

import pytest

from cudaguard.core import findings as core
from cudaguard.features.array_interface import findings as arrays
from cudaguard.features.builds import findings as builds
from cudaguard.features.builds.locks import Lock
from cudaguard.features.cuda_graphs import findings as graphs
from cudaguard.features.symbol_scope import findings as scope

LOCK = "/home/me/.cache/torch_extensions/py311_cu130/fused_adam/lock"
SCENES = {
    "array_interface.ordered": lambda: arrays.ordered(
        "numba.cuda.DeviceNDArray", "warp", "the host waited for stream 7"
    ),
    "builds.no_such_entry": lambda: builds.no_such_entry("CG032", "torch.utils.file_baton"),
    "builds.stale_lock": lambda: builds.stale_lock(LOCK, 7300, is_removed=False),
    "builds.stale_lock-removed": lambda: builds.stale_lock(LOCK, 7300, is_removed=True),
    "builds.waiting": lambda: builds.waiting(
        LOCK, Lock("held", 60, 4242), "python setup.py build_ext"
    ),
    "builds.waiting-unknown": lambda: builds.waiting(
        LOCK, Lock("unknown", 60, why="process 4242 cannot be inspected"), ""
    ),
    "builds.old_lock": lambda: builds.old_lock(
        LOCK, Lock("unknown", time.time(), why="its file belongs to another user")
    ),
    "core.no_journal": lambda: core.no_journal(
        "/logs/cudaguard.jsonl", FileNotFoundError(2, "No such file or directory")
    ),
    "cuda_graphs.not_copied": lambda: graphs.not_copied("transformers.DynamicCache"),
    "cuda_graphs.stale": lambda: graphs.stale("infer.py:12", (1, 256), "infer.py:13"),
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
