"""pylibraft takes rows with gaps for rows without: what its own code says of an array.

Its modules that read arrays need no GPU and no other part of it, so they are loaded from their
files: the package itself wants CUDA.
"""

from __future__ import annotations

import pytest

from .array_packages import run_with as run_with

pytestmark = pytest.mark.incidents

PINS = ("--no-deps", "pylibraft-cu12==26.10.0", "numpy==2.4.6", "packaging", "wrapt==2.5.2")
PINS += ("importlib-metadata",)
READS = """
import importlib.util, sysconfig, types, pathlib

common = pathlib.Path(sysconfig.get_path("purelib")) / "pylibraft" / "common"
for name in ("pylibraft", "pylibraft.common"):
    sys.modules[name] = types.ModuleType(name)
for part in ("input_validation", "ai_wrapper", "cai_wrapper"):
    name = f"pylibraft.common.{part}"
    spec = importlib.util.spec_from_file_location(name, common / f"{part}.py")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    setattr(sys.modules["pylibraft.common"], part, sys.modules[name])
    spec.loader.exec_module(sys.modules[name])
from pylibraft.common.cai_wrapper import cai_wrapper

def read(array):
    seen = cai_wrapper(array)
    return f"{seen.shape} {seen.dtype} contiguous={seen.c_contiguous} at {seen.data}"
"""
PADDED = {"shape": (4, 3), "strides": (16, 4)}


def test_padded_rows_are_taken_for_dense_ones(run_with):
    """The red half: no error, and other numbers than those of the array."""
    code = f"{READS}print(read(Array(**{PADDED})), read(Array(shape=(4, 3))), sep=chr(10))"
    padded, dense = run_with(PINS, code).out
    assert padded == dense == "(4, 3) float32 contiguous=True at 4096"


def test_normalize_refuses_them_and_hands_dense_ones_over(run_with):
    code = (
        READS
        + f"""
for changes in ({PADDED}, dict(typestr=">f4"), {{}}, dict(strides=(16, 4))):
    array = Array(**changes)
    print(outcome(lambda: read(cudaguard.normalize(array, consumer="pylibraft"))))
"""
    )
    padded, big, dense, said = run_with(PINS, code).out
    assert padded.startswith("ArrayInterfaceError")
    assert "strides" in padded
    assert big.startswith("ArrayInterfaceError")
    assert dense == said == "ok (4, 4) float32 contiguous=True at 4096"


def test_stream_of_the_producer_is_not_looked_at(run_with):
    code = READS + "print(read(Array(stream=2)) == read(Array()))"
    assert run_with(PINS, code).out == ["True"]
