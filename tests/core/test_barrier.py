"""Whose error is it, and past what are the guard's own modules imported?"""

from __future__ import annotations

import signal
import sys

import pytest

from cudaguard.errors import CudaGuardError
from cudaguard.files import is_refusal, must_propagate, own_errors, program_errors
from cudaguard.hooks.barrier import swallowed


class Limit(Exception):
    """A class of the program's own."""


def as_of(module, function):
    """Return a function as one that is defined in a module of that name."""
    return type(function)(function.__code__, {**globals(), "__name__": module})


def _raise(error):
    raise error


def error_of(module, error):
    """Return an error that has come up in code of a module."""

    def catch(call, error):
        try:
            call(error)
        except BaseException as caught:
            return caught

    return as_of("cudaguard.looking", catch)(as_of(module, _raise), error)


@pytest.mark.parametrize(
    ("module", "error", "is_programs"),
    [
        ("cudaguard.elf", OSError(), False),
        ("ctypes", ValueError(), False),
        ("cudaguard.elf", Limit(), True),
        ("cudaguard.elf", KeyboardInterrupt(), True),
        ("decord", OSError(), True),
        ("__main__", TimeoutError(), True),
        (None, TimeoutError(), True),
    ],
)
def test_error_is_ours_by_its_class_and_by_the_code_it_came_up_in(module, error, is_programs):
    assert must_propagate(error_of(module, error)) is is_programs


def test_error_of_a_signal_handler_passes_wherever_the_handler_is_defined():
    handler = as_of("asyncio.runners", lambda number, frame: _raise(TimeoutError()))
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        error = error_of("cudaguard.elf", TimeoutError())
        assert not must_propagate(error)
        with pytest.raises(TimeoutError) as caught:
            handler(signal.SIGUSR1, None)
        assert must_propagate(caught.value)
        assert not is_refusal(caught.value)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_except_clauses_catch_what_is_meant():
    def look(call, kinds):
        try:
            call(OSError())
        except kinds(OSError):
            return "caught"

    look = as_of("cudaguard.looking", look)
    assert look(as_of("cudaguard.elf", _raise), own_errors) == "caught"
    with pytest.raises(OSError):  # noqa: PT011  # whatever it says
        look(_raise, own_errors)
    assert look(_raise, program_errors) == "caught"


def test_only_a_failure_of_ours_is_told():
    told = []

    class Host:
        def broken(self, what, error):
            told.append(what)

    assert swallowed(Host(), "looking", error_of("cudaguard.elf", ValueError()))
    assert told == ["looking"]
    assert not swallowed(Host(), "looking", error_of("cudaguard.elf", CudaGuardError()))
    assert not swallowed(Host(), "looking", error_of("torch", ValueError()))
    assert told == ["looking"]


HOOKS = """
import builtins, sys
import cudaguard
cudaguard.install().mode
class Refusing:
    def find_spec(self, name, path=None, target=None):
        asked.append(name)
        if name.startswith("cudaguard") or name == "colorsys":
            raise ImportError(f"not allowed: {name}")
def statement(name, *args, real=builtins.__import__, **kwargs):
    stated.append(name)
    return real(name, *args, **kwargs)
asked, stated = [], []
sys.meta_path.insert(0, Refusing())
builtins.__import__ = statement
own = sys.modules["cudaguard.hooks.own_imports"]
"""


def test_modules_of_ours_are_imported_past_the_programs_hooks(child):
    done = child.python(
        HOOKS
        + """
assert "cudaguard.elf.resident" not in sys.modules
own.load("cudaguard.elf.resident")
assert sys.modules["cudaguard"].elf.resident is sys.modules["cudaguard.elf.resident"]
print("ctypes" in asked, [name for name in asked + stated if "cudaguard" in name])
"""
    )
    # The program may be waiting for ctypes, to change it once it comes.
    assert done.stdout == "True []\n"


def test_standard_library_that_is_refused_is_not_there_for_us(child):
    done = child.python(
        HOOKS
        + """
try:
    own._import("colorsys")
except own.RefusedImportError as error:
    print(error, error.name, "colorsys" in sys.modules)
"""
    )
    assert done.stdout == "import of colorsys refused by the program colorsys False\n"


def test_this_module_is_a_programs():
    assert __name__.partition(".")[0] not in {"cudaguard", *sys.builtin_module_names}
