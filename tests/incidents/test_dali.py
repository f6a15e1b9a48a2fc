"""DALI refuses or misreads arrays of other libraries (NVIDIA/DALI#5423); the guard hands them over.

What tells the fault of DALI 1.32 to 1.36 from the missing driver is the cause of the error.
"""

from __future__ import annotations

import pytest

from .array_packages import DALI_1_35, DALI_2_4
from .array_packages import run_with as run_with

pytestmark = pytest.mark.incidents

RELEASES = pytest.mark.parametrize("pins", [DALI_1_35, DALI_2_4], ids=["1.35.0", "2.4.0"])
IMPORT = """
import numpy as np
import nvidia.dali
from nvidia.dali.backend import TensorGPU, TensorListGPU


def tensor(array, **more):
    made = TensorGPU(array, device_id=0, **more)
    return f"{made.shape()} {made.dtype.name}"


def tensor_list(array):
    made = TensorListGPU(array, device_id=0)
    return f"{made.shape()[0]}x{len(made)} {made.dtype.name}"
"""
CASES = """
cases = {
    "None": {"stream": None},
    "absent": {},
    "1": {"stream": 1},
    "2": {"stream": 2},
    "0": {"stream": 0},
    "numpy stream": {"stream": np.int64(1)},
    "numpy pointer": {"data": (np.uint64(0x1000), False)},
    "list shape": {"shape": [4, 4]},
    "list data": {"data": [0x1000, False]},
    "no version": {"version": ...},
    "f4": {"typestr": "f4"},
    "=f": {"typestr": "=f"},
    "bool": {"typestr": "|b1"},
    "big": {"typestr": ">f4"},
    "complex": {"typestr": "<c8"},
    "gaps": {"strides": (32, 4)},
    "dense": {"strides": (16, 4)},
    "read-only": {"data": (0x1000, True)},
}
for name, changes in cases.items():
    for call in (tensor, tensor_list):
        array = Array(**changes)
        print(f"{name} ~ {outcome(lambda: call(array))} ~ {array.reads}")
"""


@pytest.fixture
def run(run_with):
    """Runs code behind `IMPORT`, as `run_with` does."""
    return lambda pins, code, *how, **more: run_with(pins, IMPORT + code, *how, **more)


# What is refused by name, whatever the words around it.
TEXTS = {
    "cudaErrorInsufficientDriver": "no driver",
    "returned a result with an exception set": "exception set",
    "cu_a_interface.contains": "malformed",
    "Cannot create type for unknown format string": "unknown type",
    "stream_value != 0": "ambiguous stream",
    "stride_from_shape": "strided",
}


def table(lines):
    """Case -> what became of it, the same for both classes, and reads of the array."""
    seen = {}
    for line in lines:
        case, text, reads = line.split(" ~ ")
        if not text.startswith("ok"):
            (short,) = [short for words, short in TEXTS.items() if words in text]
            text = f"{text.partition(' because of ')[0]}, {short}" + (
                ", TypeError" if "because of TypeError" in text else ""
            )
        text = text.replace("ok [4, 4]", "ok").replace("ok (4,)x4", "ok")
        seen.setdefault(case, set()).add((text, int(reads)))
    assert all(len(outcomes) == 1 for outcomes in seen.values()), seen
    return {case: outcomes.pop() for case, outcomes in seen.items()}


NO_DRIVER = "RuntimeError, no driver"
MALFORMED = "RuntimeError, malformed"
BY_BOTH = {
    "absent": "ok FLOAT",
    # The order of work is looked at: that needs the CUDA runtime.
    "1": NO_DRIVER,
    "2": NO_DRIVER,
    "numpy pointer": "SystemError, exception set, TypeError",
    "list shape": MALFORMED,
    "list data": MALFORMED,
    "no version": MALFORMED,
    "f4": "RuntimeError, unknown type",
    "=f": "ok FLOAT",
    "bool": "ok INT8",  # misread
    "big": "ok FLOAT",  # misread
    "complex": "ok ???",  # misread
    "gaps": "RuntimeError, strided",
    "dense": "ok FLOAT",
    "read-only": "ok FLOAT",
}
UNGUARDED = {
    DALI_1_35: {
        **BY_BOTH,
        "None": f"{NO_DRIVER}, TypeError",  # the fault: taken for a number, and the error kept
        "0": NO_DRIVER,
        "numpy stream": f"{NO_DRIVER}, TypeError",
    },
    DALI_2_4: {
        **BY_BOTH,
        "None": "ok FLOAT",
        "0": "RuntimeError, ambiguous stream",
        "numpy stream": "RuntimeError, ambiguous stream, TypeError",
    },
}
MENDED = {
    **dict.fromkeys(("None", "numpy pointer", "list shape", "list data", "no version", "f4"),
                    "ok FLOAT"),
    "bool": "ok BOOL",
    "numpy stream": NO_DRIVER,  # as a stream 1 of Python's own
}  # fmt: skip


@RELEASES
def test_what_dali_makes_of_arrays_unguarded(run, pins):
    ran = run(pins, CASES, "off")
    assert table(ran.out) == {case: (text, 1) for case, text in UNGUARDED[pins].items()}
    assert ran.err == ""


@RELEASES
@pytest.mark.parametrize("order", ["first", "late"])
def test_what_it_makes_of_them_guarded(run, pins, order):
    code = "cudaguard.install()\n" + CASES + "print(found())"
    *lines, last = run(pins, code, "install" if order == "first" else "off").out
    seen = table(lines)
    assert {case: text for case, (text, _) in seen.items()} == {**UNGUARDED[pins], **MENDED}
    # Once, where DALI was given a view.
    assert {reads for _, reads in seen.values()} == {1, 2}
    assert sorted(set(last.split())) == ["CG834:info", "CG835:warning"]


@RELEASES
def test_refused_streams_and_types_are_warned_of_at_the_line_of_the_call(run, pins):
    code = """
for changes in ({"stream": 0}, {"typestr": ">f4"}, {"strides": (32, 4)}):
    for _ in range(2):
        outcome(lambda: TensorGPU(Array(**changes), device_id=0))
print(found())
"""
    ran = run(pins, code, "install")
    assert ran.out == ["CG835:warning CG835:warning CG835:warning"]
    assert len(ran.warnings) == 3
    for warning, field in zip(ran.warnings, ("stream", "typestr", "strides")):
        assert "main.py" in warning
        assert "ArrayInterfaceWarning: [CG835] dali" in warning
        assert f"may not read the {field} of __main__.Array correctly." in warning
    assert "0 is forbidden" in ran.err
    assert "stream=1" in ran.err


def test_strict_raises_before_dali_is_asked(run):
    code = """
cudaguard.install("strict")
print(outcome(lambda: TensorGPU(Array(stream=0), device_id=0)))
print(outcome(lambda: tensor(Array(stream=None))))
"""
    refused, fine = run(DALI_2_4, code, "install").out
    assert refused.startswith("ArrayInterfaceError because of NoneType: __cuda_array_interface__")
    assert fine == "ok [4, 4] FLOAT"


def test_nothing_is_changed_where_only_looking_is_allowed(run):
    code = """
for mode in ("observe", "warn"):
    cudaguard.install(mode)
    print(outcome(lambda: tensor(Array(stream=None)))[:37], found())
"""
    ran = run(DALI_1_35, code, "off")
    assert ran.out == ["RuntimeError because of TypeError: CU CG834:warning"] * 2


def test_warning_without_repair_says_what_would_do(run):
    code = """
cudaguard.install("warn")
outcome(lambda: tensor(Array(stream=None)))
"""
    (warning,) = run(DALI_1_35, code, "off").warnings
    assert "dali may not read __main__.Array correctly without this change" in warning
    assert "this change: stream None left out." in warning


@RELEASES
def test_calls_by_keyword_with_a_layout_and_of_lists(run, pins):
    code = """
def keyword():
    return TensorGPU(object=Array(shape=[4, 4]), layout="HW", device_id=0).layout()

def positional():
    return TensorGPU(Array(shape=[4, 4]), "HW", 0).layout()

def keyword_list():
    return TensorListGPU(object=Array(shape=[4, 4]), layout="H", device_id=0).layout()

def several():  # the driver is asked for the device of each
    return len(TensorListGPU([Array(shape=[4, 4]), Array(shape=[4, 4])]))

def none_at_all():
    return len(TensorListGPU([]))

for call in (keyword, positional, keyword_list, several):
    print(outcome(call)[:60])
for call in (TensorGPU, TensorListGPU):
    for wrong in ((), (4,), (object(), "HW"), (Array(), 1, 2, 3, 4)):
        print(outcome(lambda: call(*wrong)))
"""
    bare, ran = run(pins, code, "off"), run(pins, code, "install")
    assert [line.partition(" ")[0] for line in bare.out[:3]] == ["RuntimeError"] * 3
    assert ran.out[:3] == ["ok HW", "ok HW", "ok H"]
    assert ran.out[4:] == bare.out[4:]
    assert ran.err == bare.err == ""


def test_uninstall_brings_the_fault_back(run):
    code = """
before = dict(vars(TensorGPU)), dict(vars(TensorListGPU))
for _ in range(2):
    print(outcome(lambda: tensor(Array(stream=None)))[:33])
    with cudaguard.guard():
        print(*(outcome(lambda: call(Array(stream=None))) for call in (tensor, tensor_list)))
guard = cudaguard.install()
print(outcome(lambda: tensor(Array(stream=None))))
guard.uninstall()
print(outcome(lambda: tensor(Array(stream=None)))[:33])
print(outcome(lambda: tensor_list(Array(stream=None)))[:33])
print(before == (dict(vars(TensorGPU)), dict(vars(TensorListGPU))))
"""
    ran = run(DALI_1_35, code, "off")
    fails, works = "RuntimeError because of TypeError", "ok [4, 4] FLOAT"
    assert ran.out == [
        *[fails, f"{works} ok (4,)x4 FLOAT"] * 2, works, fails, fails, "True",
    ]  # fmt: skip


def test_rules_may_be_switched_off(run):
    code = """
print(outcome(lambda: tensor(Array(stream=None)))[:33])
"""
    for rules, expected in (
        ("", ["ok [4, 4] FLOAT"]),
        ("-CG019", ["RuntimeError because of TypeError"]),
    ):
        assert run(DALI_1_35, code, "install", env={"CUDAGUARD_RULES": rules}).out == expected


@RELEASES
def test_classes_stay_themselves(run, pins):
    code = """
import copy, inspect, pickle
array = Array(stream=None) if "install" in sys.argv else Array()
made = TensorGPU(array, device_id=0)
class Mine(TensorGPU):
    def __init__(self, array, name):
        super().__init__(array, device_id=0)
        self.name = name
mine = Mine(array, "mine")
print(type(made) is TensorGPU, isinstance(mine, TensorGPU), mine.name, mine.shape())
print(pickle.loads(pickle.dumps(TensorGPU)) is TensorGPU, TensorGPU.__name__, TensorGPU.__module__)
print(outcome(lambda: pickle.dumps(made)))
print(outcome(lambda: copy.copy(made)))
for one in (TensorGPU, TensorListGPU):
    init = one.__init__
    print(init.__name__, init.__doc__, one.__doc__)
    print(outcome(lambda: inspect.signature(one)).partition(" <")[0])
print(TensorListGPU(TensorListGPU(array, device_id=0), "H").layout())
"""
    bare, ran = run(pins, code, "off"), run(pins, code, "install")
    assert bare.out[0] == "True True mine [4, 4]"
    assert ran.out == bare.out
    assert ran.err == bare.err


@RELEASES
def test_the_array_lives_as_long_as_the_tensor(run, pins):
    code = """
import gc, weakref
gc.disable()
for changes in ({}, {"shape": [4, 4]}, {"typestr": "|b1"}):
    for kind in (TensorGPU, TensorListGPU):
        array = Array(**changes)
        life = weakref.ref(array)
        made = kind(array, device_id=0)
        del array
        print(life() is not None, end=" ")
        del made
        print(life() is None)
"""
    ran = run(pins, code, "install")
    assert ran.out == ["True True"] * 6


@RELEASES
def test_healthy_arrays_are_quiet(run, pins):
    code = """
arrays = [Array(), Array(strides=(16, 4)), Array(strides=None), Array(typestr="|u1"),
          Array(version=2)]
for array in arrays:
    for call in (tensor, tensor_list):
        print(outcome(lambda: call(array)))
made = TensorGPU(Array(), device_id=0)
print(made.layout(), made.shape(), TensorListGPU(Array(), "H", 0).layout())
print(found())
"""
    bare, ran = run(pins, code, "off"), run(pins, code, "install")
    assert ran.out == bare.out
    assert ran.out[-1] == "nothing"
    assert ran.err == bare.err == ""
