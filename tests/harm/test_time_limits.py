"""What a signal handler, another thread or a `__del__` does while the guard looks.

All of it is the program's: an exception that ends a look has to reach the program, and what it
loads meanwhile has to come at once.
"""

from __future__ import annotations

import hashlib
import os

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="one process for each alarm")

LOST = pytest.mark.xfail(
    raises=AssertionError,
    reason="the guard's nets take an exception of a signal handler or thread for a failure of ours",
)
WAITS = pytest.mark.xfail(
    raises=AssertionError,
    reason="a load from within a look waits for the lock that the interrupted look holds",
)
SENT = [("signal", "TimeLimit"), ("signal", "TimeoutError"), ("thread", "TimeLimit")]
FEW = 60  # today's guard loses every third, or more
# Who catches what, besides the nets: files that are not there, attributes, names, numbers.
BUILTINS = "TimeoutError OSError RuntimeError ValueError KeyError AttributeError ImportError"
MANY = [
    *(("ctypes", "signal", error, 60) for error in BUILTINS.split()),
    *(("extension", "signal", error, 60) for error in BUILTINS.split()),
    *((situation, *sent, 120) for situation in ("ctypes", "extension") for sent in SENT),
    *(("numpy", *sent, 180) for sent in SENT[:1] + SENT[2:]),
    ("numpy", "signal", "MemoryError", 80),
]


@pytest.mark.parametrize("mode", ["off", pytest.param("fix", marks=LOST)])
@pytest.mark.parametrize(("sender", "error"), SENT)
@pytest.mark.parametrize("situation", ["ctypes", "extension"])
def test_no_time_limit_is_lost(programs, situation, sender, error, mode):
    words = ("--situation", situation, "--sender", sender, "--error", error, "--alarms", FEW)
    ends = programs.alarms(*words, mode=mode)
    assert (ends["lost"], ends["changed"]) == ({}, {})
    assert ends["arrived"] + ends["lost by Python"] == FEW


@pytest.mark.incidents
@pytest.mark.parametrize("mode", ["off", pytest.param("fix", marks=LOST)])
@pytest.mark.parametrize(("situation", "sender", "error", "number"), MANY)
def test_none_of_two_thousand_is_lost(programs, situation, sender, error, number, mode):
    assert sum(case[-1] for case in MANY) >= 2000
    seed = int(hashlib.sha256(f"{situation}{sender}{error}".encode()).hexdigest()[:6], 16)
    words = ("--situation", situation, "--sender", sender, "--error", error)
    ends = programs.alarms(*words, "--alarms", number, "--seed", seed, mode=mode, timeout=300)
    changed = {} if situation == "numpy" else ends["changed"]  # numpy makes ImportErrors of some
    assert (ends["lost"], changed) == ({}, {})


@pytest.mark.parametrize(
    ("who", "load"), [("handler", "later"), ("del", "later"), ("handler", "first")]
)
@WAITS
def test_load_from_within_a_look_comes_at_once(programs, who, load):
    moments, failed = programs.handlers(who, load)
    assert (int(moments) > 0, failed) == (True, "none")
