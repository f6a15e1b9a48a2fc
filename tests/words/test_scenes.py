"""Messages that no test hears where they are said: each is worded here from sample facts.

The gallery compares them (see ``tests/gallery.py``), and marks them as samples.
"""

from __future__ import annotations

import pytest

from cudaguard.core import findings as core
from cudaguard.features.array_interface import findings as arrays
from cudaguard.features.symbol_scope import findings as scope

SCENES = {
    "array_interface.waited": lambda: arrays.waited("numba.cuda.DeviceNDArray", "warp", 7),
    "core.no_journal": lambda: core.no_journal(
        "/logs/cudaguard.jsonl", FileNotFoundError(2, "No such file or directory")
    ),
    "symbol_scope.static_runtime": lambda: scope.static_runtime(
        "nvcv", "/env/nvcv/libnvcv_types.so", ("std::ctype<char>::id",), "train.py:3",
        "it calls dladdr(), and may look for files beside its own",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_sample(name):
    assert SCENES[name]().remedy or name == "array_interface.waited"
