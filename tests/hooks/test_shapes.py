"""Five shapes of imports in which a prerequisite can hang, fail or duplicate its target.

Each shape works without a guard. With one, every module must still be executed once, there must
be one module object, nobody may wait for ever, and nobody may see a half-made module.
"""

from __future__ import annotations

import pytest

ONCE_EACH = """
import ran, sys
print(sorted(ran.names))
print(sys.modules["target"].value, sys.modules["target"].objects)
"""
# Counts module objects, not only executions: each creation of the module leaves its id here.
TARGET = """
import ran, sys
ran.made = {*getattr(ran, "made", ()), id(sys.modules[__name__])}
"""
VALUE = "value = 42\nobjects = len(ran.made)\n"


@pytest.fixture
def cycle(pair):
    """`prereq` imports `target`, which a rule wants behind it."""
    pair.module("target.py", TARGET, VALUE)
    pair.module("prereq.py", after="import target\nassert target.value == 42\n")
    return pair


def test_cycle_in_one_thread(cycle):
    lines = cycle.guarded("import target\nprint(target.value)\n", ONCE_EACH).lines
    assert lines == ["42", "['prereq', 'target']", "42 1"]


def test_cycle_leaves_the_spec_of_the_complete_module(cycle):
    lines = cycle.guarded("""
        import target, prereq
        print(target is prereq.target, target.__spec__._initializing)
        print(type(target.__loader__).__name__, type(target.__spec__.loader).__name__)
        print(target.__loader__ is target.__spec__.loader)
    """).lines
    assert lines == ["True False", "SourceFileLoader SourceFileLoader", "True"]


# The first module stops in the middle of its import until the second thread is under way, and
# for a moment longer: long enough for that thread to reach whatever it would wait for.
TWO_THREADS = """
import threading, sys, gate
errors = []
def importing(name):
    try:
        __import__(name)
        assert sys.modules["target"].value == 42
    except BaseException as error:
        errors.append(repr(error))
def second(name):
    gate.half_way.wait()
    gate.second_started.set()
    importing(name)
first, other = FIRST_AND_SECOND
threads = [threading.Thread(target=importing, args=(first,), daemon=True),
           threading.Thread(target=second, args=(other,), daemon=True)]
for thread in threads: thread.start()
for thread in threads: thread.join(20)
print("hangs:", sum(thread.is_alive() for thread in threads), "errors:", errors)
"""
GATE = """
import threading
half_way, second_started, never = threading.Event(), threading.Event(), threading.Event()
def pause():
    half_way.set()
    second_started.wait(10)
    never.wait(0.3)
"""


@pytest.mark.parametrize("first", ["prereq", "target"])
def test_cycle_in_two_threads(pair, first):
    other = "target" if first == "prereq" else "prereq"
    pair.child.write("gate.py", GATE)
    pause = "import gate\ngate.pause()\n"
    pair.module("target.py", TARGET, VALUE + (pause if first == "target" else ""))
    pair.module("prereq.py", pause if first == "prereq" else "", "import target\n")
    code = TWO_THREADS.replace("FIRST_AND_SECOND", repr((first, other)))
    lines = pair.guarded(code, ONCE_EACH).lines
    assert lines == ["hangs: 0 errors: []", "['prereq', 'target']", "42 1"]


def test_prerequisite_that_imports_in_a_thread_and_joins_it(pair):
    """In `find_spec` the process-wide import lock would be held, and this would hang."""
    pair.modules("helper.py")
    pair.module("target.py", TARGET, VALUE)
    pair.module(
        "prereq.py",
        """
        import threading
        thread = threading.Thread(target=__import__, args=("helper",), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "the prerequisite runs under a lock"
        """,
    )
    lines = pair.guarded("import target\n", ONCE_EACH).lines
    assert lines == ["['helper', 'prereq', 'target']", "42 1"]


def test_target_that_imports_the_prerequisite_itself(pair):
    pair.modules("prereq.py")
    pair.module("target.py", TARGET + "import prereq\n", VALUE)
    lines = pair.guarded("import target, prereq\nprint(target.prereq is prereq)\n", ONCE_EACH).lines
    assert lines == ["True", "['prereq', 'target']", "42 1"]


def test_second_copy_made_by_hand_is_not_replaced_by_the_first(pair):
    """A copy of a loaded module that somebody builds on purpose stays a copy."""
    pair.modules("prereq.py")
    pair.module("target.py", "", "value = object()\n")
    lines = pair.guarded("""
        import target, importlib.util, ran
        spec = importlib.util.find_spec("target")
        spec = sys.meta_path[0].find_spec("target")
        copy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(copy)
        print(copy is target, copy.value is target.value, sys.modules["target"] is target)
        print(ran.names)
    """).lines
    assert lines == ["False False True", "['prereq', 'target', 'target']"]
