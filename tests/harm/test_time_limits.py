"""What a signal handler, another thread or a `__del__` does while the guard looks.

All of it is the program's: an exception that ends a look has to reach the program, and what it
loads meanwhile has to come at once.
"""

from __future__ import annotations

import hashlib
import os
import random

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="one process for each alarm")

SENT = [("signal", "TimeLimit"), ("signal", "TimeoutError"), ("thread", "TimeLimit")]
# Python's import system takes an OSError for a file that is not there, whoever sends it.
CASES = [*((situation, *sent) for situation in ("ctypes", "extension") for sent in SENT),
         ("ctypes", "thread", "TimeoutError"), ("extension", "thread", "RuntimeError")]  # fmt: skip
FEW = 60  # today's guard loses every third, or more
# Who catches what, besides the nets: files that are not there, attributes, names, numbers.
BUILTINS = "TimeoutError OSError RuntimeError ValueError KeyError AttributeError ImportError"
MANY = [
    *(("ctypes", "signal", error, 60) for error in BUILTINS.split()),
    *(("extension", "signal", error, 60) for error in BUILTINS.split()),
    *((situation, *sent, 120) for situation in ("ctypes", "extension") for sent in SENT),
    ("numpy", "signal", "TimeLimit", 440),
]
NUMPYS = ("lost (program)", "lost (import system)")


@pytest.mark.parametrize("mode", ["off", "fix", "woken"])
@pytest.mark.parametrize(("situation", "sender", "error"), CASES)
def test_no_time_limit_is_lost(programs, situation, sender, error, mode):
    words = ("--situation", situation, "--sender", sender, "--error", error, "--alarms", FEW)
    ends = programs.alarms(*words, mode=mode)
    assert (ends["lost"], ends["changed"]) == ({}, {})
    assert ends["arrived"] + ends["lost by Python"] == FEW


@pytest.mark.incidents
@pytest.mark.parametrize("mode", ["off", "fix", "woken"])
@pytest.mark.parametrize(("situation", "sender", "error", "number"), MANY)
def test_none_of_two_thousand_is_lost(programs, situation, sender, error, number, mode):
    assert sum(case[-1] for case in MANY) >= 2000
    seed = int(hashlib.sha256(f"{situation}{sender}{error}".encode()).hexdigest()[:6], 16)
    words = ("--situation", situation, "--sender", sender, "--error", error)
    ends = programs.alarms(*words, "--alarms", number, "--seed", seed, mode=mode, timeout=300)
    lost, changed = ends["lost"], ends["changed"]
    if situation == "numpy":  # which catches some itself, and makes ImportErrors of others
        changed = {}
        lost = {how: n for how, n in lost.items() if how not in NUMPYS}
    assert (lost, changed) == ({}, {})


TAKER = "int which_copy(void) { return 1; }\n"
USER = TAKER + "int use(void) { return which_copy(); }\n"
STOPPED = """
import cudaguard
cudaguard.install()
import ctypes, os, signal, sys

class TimeLimit(Exception):
    pass

def stop(number, frame):
    raise TimeLimit

def load_until(moment):
    # Each call and return in a function of the guard is a moment.
    seen = 0
    def profile(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename.startswith(os.path.dirname(cudaguard.__file__)):
            seen += 1
            if seen == moment:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGALRM)
    sys.setprofile(profile)
    ctypes.CDLL({library!r})
    sys.setprofile(None)
    return seen

def became(moment):
    ignored = []  # what is raised where a generator is closed, Python itself cannot raise
    sys.unraisablehook = ignored.append
    try:
        load_until(moment)
        return "ignored by Python" if ignored else "not stopped"
    except TimeLimit:
        ctypes.CDLL("./libtaker.so", ctypes.RTLD_GLOBAL)
        ctypes.CDLL("./libuser.so")
        return " ".join(finding.id for finding in cudaguard.status().findings)

signal.signal(signal.SIGALRM, stop)
if not {moments}:
    print(load_until(0))
for moment in {moments}:
    child = os.fork()
    if child == 0:
        cudaguard.install("observe")  # a forked process does not warn anyway
        print(moment, became(moment), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_guard_that_was_stopped_goes_on_looking(native, compiler):
    """At whatever moment of a look a limit ends a load, the next one is looked at as ever."""
    compiler.put(native.child.folder / "libtaker.so", TAKER)
    compiler.put(native.child.folder / "libuser.so", USER)
    library = str(native.extension("one"))
    (total,) = native.bare(STOPPED.format(library=library, moments=[])).lines
    moments = random.Random(2).sample(range(1, int(total) + 1), 25)
    ran = native.bare(STOPPED.format(library=library, moments=moments))
    as_it_should = [(f"{moment} CG812", f"{moment} ignored by Python") for moment in moments]
    assert len(ran.lines) == len(moments)
    assert [line for line, good in zip(ran.lines, as_it_should) if line not in good] == []
    assert ran.err == ""


@pytest.mark.parametrize(
    ("who", "load"), [("handler", "later"), ("del", "later"), ("handler", "first")]
)
def test_load_from_within_a_look_comes_at_once(programs, who, load):
    moments, failed = programs.handlers(who, load)
    assert (int(moments) > 0, failed) == (True, "none")
