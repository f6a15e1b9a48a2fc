"""torch and CuPy refuse arrays that others take: what they say before they first ask the driver.

torch is one without CUDA. An array that it has read well comes to its first call of the driver,
which it has not; for CuPy there is no driver.
"""

from __future__ import annotations

import pytest

from .array_packages import CUPY
from .array_packages import run_with as run_with
from .cuda_packages import site_packages
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


@pytest.fixture
def run_torch(run_with, cached_environment, root):
    """As `run_with`, in the environment of torch, which has not wrapt: CuPy's lends it."""

    def run(code, *arguments):
        place = f"{root}:{site_packages(cached_environment(*CUPY))}"
        return run_with(TORCH, LIMIT + code, *arguments, env={"PYTHONPATH": place})

    return run


@pytest.fixture
def run_cupy(run_with):
    """As `run_with`, in the environment of CuPy."""
    return lambda code, *arguments: run_with(CUPY, code, *arguments)


def check(ran, read, refused):
    """Is all read, but for what is refused? Returns the other lines."""
    lines = [line.split(" ~ ") for line in ran.out if " ~ " in line]
    assert len(lines) >= 14
    for case, text, _ in lines:
        assert text.startswith(refused.get(case, read)), f"{case}: {text}"
    return [line for line in ran.out if " ~ " not in line]


@pytest.mark.parametrize("entry", ["as_tensor", "asarray"])
def test_torch(run_torch, entry):
    code = f"import torch\n{CASES}\nrun(torch.{entry})\nprint(found())"
    for arguments in (("off",), ("install",)):  # the rule is opt-in
        ran = run_torch(code, *arguments)
        assert check(ran, TORCH_READ, {**TORCH_REFUSES, **TORCH_ALWAYS_REFUSES}) == ["nothing"]
        assert ran.err == ""
    enable = "cudaguard.install(enable=['CG022'])\n"
    for enabled in (enable + code, code.replace("torch\n", f"torch\n{enable}", 1)):
        ran = run_torch(enabled, "off")
        (last,) = check(ran, TORCH_READ, TORCH_ALWAYS_REFUSES)
        assert set(last.split()) == {"CG834:info", "CG835:warning"}
        fields = [
            line.partition("may not read the ")[2].partition(" of ")[0] for line in ran.warnings
        ]
        # What torch misreads silently, or refuses: said, and left to it.
        assert fields == ["typestr", "strides", "data", "stream"]


@pytest.mark.parametrize("entry", ["asarray", "array"])
def test_cupy(run_cupy, entry):
    code = f"import cupy\n{CASES}\nrun(cupy.{entry})\nprint(found())"
    for arguments in (("off",), ("install",)):
        ran = run_cupy(code, *arguments)
        assert check(ran, CUPY_READ, {**CUPY_REFUSES, **CUPY_ALWAYS_REFUSES}) == ["nothing"]
        assert ran.err == ""
    ran = run_cupy("cudaguard.install(enable=['CG023'])\n" + code, "off")
    (last,) = check(ran, CUPY_READ, CUPY_ALWAYS_REFUSES)
    assert set(last.split()) == {"CG832:warning", "CG834:info", "CG835:warning"}
    assert [line.partition("[")[2][:5] for line in ran.warnings] == ["CG835", "CG832", "CG835"]


TORCH_AS_EVER = """
import warnings
warnings.simplefilter("ignore")  # torch's; their lines are ours where its function is called by us
import numpy as np
import torch

for entry in (torch.as_tensor, torch.asarray, torch.tensor):
    print(entry.__name__, entry([1, 2]), entry(np.ones(2)), entry(3.0, dtype=torch.float64))
    print(entry(torch.ones(2)), entry([], device="cpu").shape)
    print(outcome(lambda: entry(object())), outcome(entry))
    print(entry(torch.ones(2, requires_grad=True)).requires_grad, callable(entry))
same = torch.ones(3)
print(torch.as_tensor(same) is same, torch.asarray(same).data_ptr() == same.data_ptr())
shared = np.zeros(2)
torch.as_tensor(shared)[0] = 7
print(shared, torch.as_tensor(data=shared), torch.asarray(obj=shared, copy=True))
print(torch.utils.data.default_collate([{"a": 1.0}, {"a": 2.0}]))
print(found())
"""


def test_what_torch_does_with_everything_else_is_as_ever(run_torch):
    bare = run_torch(TORCH_AS_EVER, "off")
    ran = run_torch("cudaguard.install(enable=['CG022'])\n" + TORCH_AS_EVER, "off")
    assert ran.out == bare.out
    assert ran.out[-1] == "nothing"
    assert ran.err == bare.err == ""


def test_wrapt_is_not_mapped_before_torch(run_torch):
    code = """
class Seen:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch._C", "wrapt"):
            print(name)
sys.meta_path.insert(0, Seen())
cudaguard.install(enable=["CG022"])
import torch
print(type(torch.as_tensor).__name__)
cudaguard.uninstall()
print(type(torch.as_tensor).__name__)
"""
    ran = run_torch(code, "off")
    assert ran.out == ["torch._C", "wrapt", "FunctionWrapper", "builtin_function_or_method"]
