"""A signal handler, or a `__del__`, that loads a library while the guard looks at another load.

Each call and return in a function of the guard is a moment. `later` tries all moments of one load,
`first` some of the first load of a library, each in a forked process. Prints how many there are,
and the first at which the library did not come at once, or something was said of it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import cudaguard

WHO, WHICH, LIBRARY = sys.argv[1:]
GUARD = os.path.dirname(cudaguard.__file__) + os.sep
SAMPLES = 60  # of the moments of a first load
# Seconds that a load may spend without computing anything: the file is mapped already, and there
# is nothing to wait for.
WAIT = 0.5


class Moment:
    """Has something done at a given moment of what the guard does."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0

    def _profile(self, frame, event, argument):
        if frame.f_code.co_filename.startswith(GUARD):
            self.seen += 1
            if self.seen == self.at:
                sys.setprofile(None)
                interrupt()

    def during(self, work) -> None:
        sys.setprofile(self._profile)
        try:
            work()
        finally:
            sys.setprofile(None)


waited = []


def load() -> None:
    ctypes.CDLL(LIBRARY)


def load_and_measure(*_) -> None:
    began, computed = time.monotonic(), time.thread_time()
    load()
    waited.append((time.monotonic() - began) - (time.thread_time() - computed))


class Dying:
    def __del__(self):
        load_and_measure()


signal.signal(signal.SIGALRM, load_and_measure)
if WHO == "handler":

    def interrupt() -> None:
        signal.raise_signal(signal.SIGALRM)
else:

    def interrupt() -> None:
        Dying()


def fails_at(moment: int) -> bool:
    """Does the second load wait at this moment, or not come, or is something said of it?"""
    waited.clear()
    Moment(moment).during(load)
    return max(waited, default=0) > WAIT or bool(cudaguard.status().findings)


def fails_in_a_fork(moment: int) -> bool:
    """The same in a process that has not loaded the library yet."""
    child = os.fork()
    if child == 0:
        os._exit(int(fails_at(moment)))
    return os.waitpid(child, 0)[1] != 0


def number_of_moments() -> int:
    """Return how many there are in a load, tried in a process of its own."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        moment = Moment(0)
        moment.during(load)
        os.write(writing, b"%d" % moment.seen)
        os._exit(0)
    os.wait()
    return int(os.read(reading, 20))


cudaguard.install("fix")
import ctypes  # noqa: E402  # behind the guard, as in a program

if WHICH == "first":
    total, fails = number_of_moments(), fails_in_a_fork
    moments = random.Random(1).sample(range(1, total + 1), min(SAMPLES, total))
else:
    load()
    total, fails = number_of_moments(), fails_at
    moments = range(1, total + 1)
# A machine may be busy at one moment by accident, and is hardly so twice.
print(total, next((moment for moment in moments if fails(moment) and fails(moment)), "none"))
