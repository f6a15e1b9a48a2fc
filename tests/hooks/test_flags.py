"""``sys.setdlopenflags``: whose extensions stay local is told by who sets the flags.

Two extensions define the same function. `first`, loaded globally, takes the calls of `second`.
"""

from __future__ import annotations

import shutil
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(sys, "setdlopenflags"), reason="it needs dlopen flags")

# What tensorflow does: save the flags, set them, import its library, restore them.
PACKAGE = """
import os, sys
before = sys.getdlopenflags()
sys.setdlopenflags(before | os.RTLD_GLOBAL)
seen = sys.getdlopenflags() & os.RTLD_GLOBAL
from . import first
sys.setdlopenflags(before)
"""
USE = """
import loud
import second
print(second.ask(), bool(loud.seen), sys.getdlopenflags() == loud.before)
"""


@pytest.fixture
def loud(pair, compiler):
    """The package `loud` with the extension `first`, and the extension `second` beside it."""
    pair.child.write("loud/__init__.py", PACKAGE)
    for name, answer, folder in (("first", 1, "loud"), ("second", 2, ".")):
        body = f"int shared_answer(void) {{ return {answer}; }}"
        built = compiler.asking(name, "shared_answer", body=body)
        shutil.copy(built, pair.child.folder / folder)
    return pair


def run(loud, mode="fix", rule="watch=('loud',), actions=({'load_local': 'first*.so'},)", tail=""):
    code = f"""
import sys, cudaguard
cudaguard.install({mode!r}, rules=[cudaguard.Rule('SCOPE1', {rule}, why='test')])
{USE}
print([f.id for f in cudaguard.status().findings])
{tail}
"""
    return loud.bare(code)


def test_without_the_guard_the_call_goes_astray(loud):
    assert loud.bare("import sys", USE).lines == ["1 True True"]


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_extensions_of_a_watched_package_stay_local(loud, mode):
    tail = "print([t for t in cudaguard.status().changes if 'loud' in t])"
    assert run(loud, mode, tail=tail).lines == [
        "2 False True",
        "[]",
        "['extension modules of loud: kept in local symbol scope by SCOPE1 (stays)']",
    ]


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_other_modes_tell_and_change_nothing(loud, mode):
    ran = run(loud, mode)
    assert ran.lines == ["1 True True", "['SCOPE1']"]
    expected = "loud exposes its extensions to every library"
    assert (expected in ran.err) is (mode == "warn")


@pytest.mark.parametrize(
    "rule",
    [
        "watch=('lou',), actions=({'load_local': '*'},)",
        "watch=('loud.first',), actions=({'load_local': '*'},)",
        "watch=('loud',), needs=('second',)",
        "watch=('loud',), actions=({'load_local': '*'},), dist=('no-such-distribution',)",
    ],
)
def test_packages_that_no_scope_rule_watches_are_let_be(loud, rule):
    assert run(loud, rule=rule).lines[0].split()[1:] == ["True", "True"]


def test_wrong_calls_are_answered_as_by_python(loud):
    calls = """
import inspect
for arguments in ((), (1, 2), ("text",), (None,), (2 ** 80,)):
    try:
        sys.setdlopenflags(*arguments)
    except Exception as error:
        print(type(error).__name__, error)
try:
    sys.setdlopenflags(flags=1)
except Exception as error:
    print(type(error).__name__, error)
print(sys.getdlopenflags(), inspect.signature(sys.setdlopenflags))
"""
    plain = loud.bare("import sys", calls)
    guarded = loud.bare("import sys, cudaguard; cudaguard.install()", calls)
    assert guarded.lines == plain.lines
    assert guarded.err == plain.err == ""


def test_values_that_stand_for_numbers(loud):
    calls = """
import os
class Index:
    def __init__(self, number): self.number = number
    def __index__(self): print("asked"); return self.number
class Odd(int):
    def __and__(self, other): raise ZeroDivisionError
    __rand__ = __or__ = __bool__ = __and__
class Failing:
    def __index__(self): raise LookupError("no number")
for flags in (Index(os.RTLD_NOW), Odd(os.RTLD_NOW | os.RTLD_GLOBAL), True, Failing(), Index("2")):
    try:
        sys.setdlopenflags(flags)
    except Exception as error:
        print(type(error).__name__, error)
    print(sys.getdlopenflags())
"""
    plain = loud.bare("import sys", calls)
    guarded = loud.bare("import sys, cudaguard; cudaguard.install()", calls)
    assert (guarded.lines[:-1], guarded.err) == (plain.lines[:-1], plain.err)
    assert plain.lines[-1] == guarded.lines[-1] == "1"


def test_function_in_a_class_is_no_method(loud):
    use = """
import copy, inspect, pickle, types
class Loader:
    set_flags = sys.setdlopenflags
Loader().set_flags(sys.getdlopenflags())
Loader.set_flags(sys.getdlopenflags())
f = sys.setdlopenflags
print(Loader.set_flags is f, repr(f), isinstance(f, types.BuiltinFunctionType), callable(f))
print(f.__name__, f.__qualname__, f.__module__, f.__self__ is sys, f.__doc__, inspect.signature(f))
print(hasattr(f, "__get__"), hasattr(f, "__code__"), f == f, {f: 1}[f], inspect.isbuiltin(f))
print(pickle.loads(pickle.dumps(f)) is f, copy.copy(f) is f, copy.deepcopy(f) is f)
"""
    plain = loud.bare("import sys", use)
    guarded = loud.bare("import sys, cudaguard; cudaguard.install()", use)
    assert (guarded.lines, guarded.err) == (plain.lines, "")


def test_call_that_no_code_makes(loud):
    """There is no frame below that of a thread's own function, nor below one of atexit."""
    calls = """
import _thread, atexit, os, time
flags = sys.getdlopenflags()
_thread.start_new_thread(sys.setdlopenflags, (flags | os.RTLD_GLOBAL,))
until = time.monotonic() + 20
while sys.getdlopenflags() == flags and time.monotonic() < until:
    time.sleep(0.01)
atexit.register(lambda: print(sys.getdlopenflags() == flags))
atexit.register(sys.setdlopenflags, flags)
print(sys.getdlopenflags() == flags | os.RTLD_GLOBAL)
"""
    done = loud.bare("import sys, cudaguard; cudaguard.install()", calls)
    assert (done.lines, done.err) == (["True", "True"], "")


def test_function_is_put_back_and_looks_the_same(loud):
    look = "print(sys.setdlopenflags.__name__, sys.setdlopenflags.__module__)"
    lines = loud.bare(f"""
import sys, cudaguard
before = sys.setdlopenflags
{look}
cudaguard.install()
{look}
print(sys.setdlopenflags is before)
cudaguard.install()
cudaguard.uninstall()
print(sys.setdlopenflags is before)
""").lines
    assert lines[0] == lines[1]
    assert lines[2:] == ["False", "True"]


def test_later_patch_of_others_is_let_be(loud):
    assert loud.bare("""
import sys, cudaguard
cudaguard.install()
ours = sys.setdlopenflags
theirs = lambda flags: ours(flags)
sys.setdlopenflags = theirs
cudaguard.uninstall()
sys.setdlopenflags(sys.getdlopenflags())
print(sys.setdlopenflags is theirs)
print([t for t in cudaguard.status().changes if "setdlopenflags" in t])
""").lines == ["True", "['sys.setdlopenflags: passes through, under a later patch (stays)']"]
