"""A second import of a module with native code: the error that counts is the first one."""

from __future__ import annotations

import pytest

from .conftest import TO_THE_END

pytestmark = TO_THE_END

# What native code sets up outlives the module, as the docstrings of torch's functions do.
NATIVE = """
import sys
if hasattr(sys, "is_set_up"):
    raise RuntimeError("function 'f' is there already")
sys.is_set_up = True
import helper
"""
PROGRAM = """
import sys
import cudaguard
rule = cudaguard.Rule(id="ANY1", watch=("native",), why="It is watched.")
cudaguard.install({mode!r}, rules=[rule])
{first}
import native
"""
FAILS = "try: import native\nexcept {}: pass"
TWICE = "import native\ndel sys.modules['native']"


@pytest.fixture
def told(child):
    """Runs a program that imports `native`, which needs `helper`; what is said as it dies."""

    def told(first, *, mode="fix", helper=""):
        child.write("native.py", NATIVE)
        child.write("helper.py", helper)
        done = child.python(PROGRAM.format(first=first, mode=mode), check=False)
        assert "RuntimeError: function 'f' is there already\n" in done.stderr
        return done.stderr

    return told


def test_first_error_is_told_with_the_second_one(told):
    said = told(FAILS.format("ImportError"), helper="import nothing_of_that_name")
    assert "[CG824] native is imported a second time, after its first import failed." in said
    assert "the first error: ModuleNotFoundError: No module named 'nothing_of_that_name'" in said
    assert "fix: fix the first error; then start a new Python" in said


def test_first_error_is_not_kept_whole(told):
    said = told(FAILS.format("ImportError"), helper="raise ImportError('x' * 900_000)")
    assert "xx" in said.partition("[CG824]")[2]
    assert len(said) < 20_000


def test_cure_of_the_first_error_is_told_where_it_is_known(told):
    missing = "libcudart.so.12: cannot open shared object file: No such file or directory"
    said = told(FAILS.format("ImportError"), helper=f"raise ImportError({missing!r})")
    assert "nvidia-cuda-runtime-cu12" in said
    assert "; then start a new Python" in said


def test_module_that_was_taken_out_of_sys_modules(told):
    assert "native is imported a second time: something has taken it out of" in told(TWICE)
    assert "CG824" not in told(TWICE, mode="off")


@pytest.mark.parametrize("before", ["", FAILS.format("RuntimeError")])
def test_first_import_and_the_same_error_twice_are_no_riddle(told, before):
    assert "CG824" not in told(f"sys.is_set_up = True\n{before}")


def test_error_that_is_raised_from_another_one_is_no_second_import(child):
    """As cupy does."""
    again = "except ImportError as error: raise ImportError('see below') from error"
    child.write("native.py", f"try: import nothing_of_that_name\n{again}")
    done = child.python(PROGRAM.format(first="", mode="fix"), check=False)
    assert "ImportError: see below\n" in done.stderr
    assert "CG824" not in done.stderr
