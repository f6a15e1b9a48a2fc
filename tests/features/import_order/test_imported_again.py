"""A second import of a module with native code: the error that counts is the first one."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="errors take no notes")

# What native code sets up outlives the module, as the docstrings of torch's functions do.
NATIVE = """
import sys
if hasattr(sys, "is_set_up"):
    raise RuntimeError("function 'f' is there already")
sys.is_set_up = True
import helper
"""
AGAIN = """
import sys
import cudaguard
rule = cudaguard.Rule(id="ANY1", watch=("native",), why="It is watched.")
try:
    with cudaguard.guard({mode!r}, rules=[rule]):
        {first}
        import native
except Exception as error:
    print(type(error).__name__, *getattr(error, "__notes__", ["no note"]), sep="\\n")
"""
FAILS = """try:
            import native
        except ImportError:
            pass"""
TWICE = """import native
        del sys.modules["native"]"""


@pytest.fixture
def told(child):
    def run(first, *, mode="fix", helper=""):
        child.write("native.py", NATIVE)
        child.write("helper.py", helper)
        return child.python(AGAIN.format(first=first, mode=mode)).stdout.splitlines()

    return run


def test_first_error_is_told_where_the_second_one_ends_the_program(told):
    name, headline, *more = told(FAILS, helper="import nothing_of_that_name")
    assert name == "RuntimeError"
    assert headline.endswith("[CG824] native is imported a second time in this process.")
    assert "its first import failed at" in more[1]
    assert more[1].endswith("with ModuleNotFoundError: No module named 'nothing_of_that_name'.")
    assert any(line.startswith("  fix: ") and "start a new Python" in line for line in more)


def test_cure_of_the_first_error_is_told_where_it_is_known(told):
    missing = "libcudart.so.12: cannot open shared object file: No such file or directory"
    lines = told(FAILS, helper=f"raise ImportError({missing!r})")
    assert any(line.startswith("  fix: ") and "nvidia-cuda-runtime-cu12" in line for line in lines)


def test_module_that_was_taken_out_of_sys_modules(told):
    _, headline, *more = told(TWICE)
    assert "native is imported a second time" in headline
    assert "taken it out of sys.modules" in more[1]
    assert told(TWICE, mode="off") == ["RuntimeError", "no note"]


@pytest.mark.parametrize("before", ["", FAILS.replace("ImportError", "RuntimeError")])
def test_first_import_and_the_same_error_twice_are_no_riddle(told, before):
    assert told(f"sys.is_set_up = True\n        {before}") == ["RuntimeError", "no note"]
