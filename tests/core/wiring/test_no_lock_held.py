"""No lock of ours is held while foreign code runs: whatever it waits for, it does not wait for us.

Each piece of foreign code starts a thread that switches the guard, and waits for that thread.
"""

from __future__ import annotations

import pytest

SWITCH_IN_A_THREAD = """
import threading
import cudaguard

def use_everything():
    cudaguard.install("fix")
    with cudaguard.guard():
        cudaguard.add_rule(cudaguard.Rule("T1", ("nothing",), "why"))
    cudaguard.status()
    cudaguard.active_rules()

def switch():
    thread = threading.Thread(target=use_everything)
    thread.start()
    thread.join(20)
    print("hangs" if thread.is_alive() else "ends")
"""
HOLD_ON = """
import _imp, threading
LOCK = threading.Lock()
LOCK.acquire()
_imp.acquire_lock()  # the interpreter's own lock, as C extensions do
raise RuntimeError("and never let go")
"""


@pytest.fixture
def switching(program):
    """The program with a module that switches the guard in a thread and waits for it."""
    program.write("switching.py", SWITCH_IN_A_THREAD)
    return program


def test_prerequisite(switching):
    switching.write("needed.py", "from switching import switch; switch()")
    assert switching.output("cudaguard.install(rules=[rule()]); import target") == ["ends"]


def test_plugin(switching):
    switching.write("p-1.dist-info/entry_points.txt", "[cudaguard.rules]\ntarget = plug:RULES\n")
    switching.write("plug.py", "from switching import switch; switch(); RULES = []")
    assert switching.output("cudaguard.install(); import target") == ["ends"]


@pytest.mark.parametrize("when", ["late", "bad setting", "failing"])
def test_showing_a_warning(switching, when):
    env = {"CUDAGUARD_RULES": "oops"} if when == "bad setting" else {}
    if when == "failing":
        switching.write("needed.py", "1/0")
    done = switching.run(
        f"""
        import warnings
        from switching import switch
        warnings.showwarning = lambda *a, **k: switch()
        if {when!r} == "late":
            import target
        cudaguard.install(rules=[rule()])
        import target
        """,
        env=env,
    )
    assert done.stdout.split() == ["ends"]


def test_log_handler(switching):
    done = switching.output(
        """
        import logging
        from switching import switch
        class Handler(logging.Handler):
            def handle(self, record):  # logging's own lock is held in emit()
                switch()
        logging.getLogger("cudaguard").addHandler(Handler())
        logging.getLogger("cudaguard").setLevel("INFO")
        cudaguard.install(rules=[rule()])
        import target
        """
    )
    assert done == ["ends"]


@pytest.mark.parametrize("what", ["prerequisite", "plug-in"])
def test_foreign_code_that_hangs_on_to_a_lock_does_not_stop_the_program(program, what):
    program.write("needed.py" if what == "prerequisite" else "plug.py", HOLD_ON)
    program.write("p-1.dist-info/entry_points.txt", "[cudaguard.rules]\ntarget = plug:RULE\n")
    done = program.run(
        f"""
        cudaguard.install(rules=[rule()] if {what!r} == "prerequisite" else [])
        import target, other
        print(order(), found())
        """,
        env={"CUDAGUARD_PLUGINS": "0"} if what == "prerequisite" else {},
        timeout=60,
    )
    expected = "CG801" if what == "prerequisite" else "CG805"
    assert done.stdout.split() == ["target", "other", expected]
