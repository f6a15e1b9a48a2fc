"""torch and CuPy refuse arrays that others take, and take them once they are normalized.

torch is one without CUDA. An array that it has read well comes to its first call of the driver,
which it has not; for CuPy there is no driver.
"""

from __future__ import annotations

import pytest

from .array_packages import CUPY
from .array_packages import run_with as run_with
from .pins import TORCH

pytestmark = pytest.mark.incidents

CASES = """
from types import MappingProxyType
import numpy as np

cases = {
    "plain": {},
    "None": {"stream": None},
    "numpy pointer": {"data": (np.uint64(0x1000), False)},
    "numpy shape": {"shape": (np.int64(4), np.int64(4))},
    "list shape": {"shape": [4, 4]},
    "list data": {"data": [0x1000, False]},
    "no version": {"version": ...},
    "f4": {"typestr": "f4"},
    "mask None": {"mask": None},
    "big": {"typestr": ">f4"},
    "reversed": {"strides": (-16, 4)},
    "read-only": {"data": (0x1000, True)},
    "zero": {"stream": 0},
}
def run(entry):
    for name, changes in cases.items():
        array = Array(**changes)
        print(f"{name} ~ {outcome(lambda: entry(array))} ~ {array.reads}")
    array = Array()
    array.entries = MappingProxyType(array.entries)
    print(f"mappingproxy ~ {outcome(lambda: entry(array))} ~ {array.reads}")
"""

# The first words of what they say.
TORCH_READ = "RuntimeError because of NoneType: Cannot initialize CUDA without ATen_cuda library"
CUPY_READ = "CUDARuntimeError because of NoneType: cudaErrorInsufficientDriver"
INTEGER = "TypeError because of NoneType: an integer is required"
TORCH_REFUSES = {
    "numpy pointer": INTEGER,
    "list data": "TypeError because of NoneType: `data` must be a 2-tuple of (int, bool)",
    "mappingproxy": "TypeError because of NoneType: `__cuda_array_interface__` must be a dict",
}
TORCH_ALWAYS_REFUSES = {"read-only": "TypeError because of NoneType: the read only flag is not"}
CUPY_REFUSES = {
    "numpy pointer": INTEGER,
    "list shape": "TypeError because of NoneType: Expected tuple, got list",
    "mappingproxy": "TypeError because of NoneType: Expected dict, got mappingproxy",
}
CUPY_ALWAYS_REFUSES = {
    "big": "ValueError because of NoneType: CuPy does not support the big-endian"
}
LIMIT = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
"""


def check(ran, read, refused):
    """Is all read, but for what is refused? Returns the other lines."""
    lines = [line.split(" ~ ") for line in ran.out if " ~ " in line]
    assert len(lines) >= 14
    for case, text, _ in lines:
        assert text.startswith(refused.get(case, read)), f"{case}: {text}"
    return [line for line in ran.out if " ~ " not in line]


@pytest.mark.parametrize(
    ("pins", "entry", "read", "refuses", "always", "misreads"),
    [
        (
            TORCH, "torch.as_tensor", TORCH_READ, TORCH_REFUSES, TORCH_ALWAYS_REFUSES,
            {"big": "typestr", "reversed": "strides", "read-only": "data", "zero": "stream"},
        ),
        (
            CUPY, "cupy.asarray", CUPY_READ, CUPY_REFUSES, CUPY_ALWAYS_REFUSES,
            {"big": "typestr", "zero": "stream"},
        ),
    ],
    ids=["torch", "cupy"],
)  # fmt: skip
def test_reader(run_with, pins, entry, read, refuses, always, misreads):
    module = entry.partition(".")[0]
    code = f"{LIMIT}\nimport {module}\n{CASES}\n"
    for arguments in (("off",), ("install",)):
        ran = run_with(pins, f"{code}run({entry})\nprint(found())", *arguments)
        assert check(ran, read, {**refuses, **always}) == ["nothing"]
        assert ran.err == ""
    normalized = f"lambda array: {entry}(cudaguard.normalize(array, consumer={module!r}))"
    ran = run_with(pins, f"{code}run({normalized})", "off")
    refused = "ArrayInterfaceError because of NoneType: __cuda_array_interface__['{}'] of"
    # What it misreads silently, or refuses.
    check(ran, read, {case: refused.format(field) for case, field in misreads.items()})
