"""Time limits that run out at random moments of loads and imports: how many are lost?

Run by path::

    python tests/harm/alarms.py --mode fix --situation ctypes --alarms 400

Each alarm goes off in a forked process of its own, so that one that is lost does not change the
fate of the next. It raises an exception, which has to reach the program's own `except`. Prints one
line of JSON: how many did, how many became another error on their way, how many Python itself does
not let pass, and where those were raised after which the program went on as if there were no limit.
"""

from __future__ import annotations

import argparse
import builtins
import ctypes
import glob
import importlib.util
import json
import os
import random
import signal
import sys
import sysconfig
import threading
import time
from typing import Any

LONGEST = 60  # seconds for one alarm; SIGALRM is taken, so the parent looks at the clock
GUARD = os.path.dirname(importlib.util.find_spec("cudaguard").origin) + os.sep
STANDARD = (sysconfig.get_path("stdlib"), "<")


class TimeLimit(Exception):
    """A class of the program's own, as celery, rq and stopit have one."""


class Alarm:
    """One alarm: what it raises, whether it has gone off, and where it found the program."""

    def __init__(self, error: type[BaseException], delay: float) -> None:
        self.error = error
        self.delay = delay
        self.has_gone_off = False
        self.place = "unknown"
        # Python itself could not raise it, as in the callback of a weak reference.
        self.is_unraisable = False

    def by_signal(self) -> None:
        """Set a timer whose handler raises."""
        signal.signal(signal.SIGALRM, self._handle)
        signal.setitimer(signal.ITIMER_REAL, self.delay)

    def _handle(self, number: int, frame: Any) -> None:
        self.place = place_of(frame)
        self.has_gone_off = True
        raise self.error

    def by_thread(self) -> None:
        """Start a thread that has the exception raised in this one."""
        sys.setswitchinterval(1e-5)
        threading.Thread(target=self._send, args=(threading.get_ident(),), daemon=True).start()

    def _send(self, to: int) -> None:
        time.sleep(self.delay)
        error = ctypes.py_object(self.error)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(to), error)
        self.has_gone_off = True

    def unraisable(self, what: Any) -> None:
        self.is_unraisable = self.is_unraisable or isinstance(what.exc_value, self.error)


def place_of(frame: Any) -> str:
    """Return who is at work there: guard, import system, or program."""
    if frame.f_code.co_filename.startswith("<frozen importlib"):
        return "import system"
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(GUARD):
            return "guard"
        if not file.startswith(STANDARD):  # those of namedtuple are called <string>
            break
        frame = frame.f_back
    return "program"


# --- what the program is doing meanwhile -----------------------------------------------------


def load_by_ctypes(alarm: Alarm) -> None:
    """Load one library over and over."""
    while not alarm.has_gone_off:
        ctypes.CDLL(EXTENSION)


def import_extension(alarm: Alarm) -> None:
    """Import one extension over and over, as torch imports what it has built."""
    name = os.path.basename(EXTENSION).partition(".")[0]
    while not alarm.has_gone_off:
        spec = importlib.util.spec_from_file_location(name, EXTENSION)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def import_numpy(alarm: Alarm) -> None:
    """Import a package of many parts, once."""
    import numpy.fft
    import numpy.linalg
    import numpy.random  # noqa: F401  # the import is the point

    while not alarm.has_gone_off:
        time.sleep(0.001)


# And within how many seconds the alarm goes off.
SITUATIONS = {
    "ctypes": (load_by_ctypes, 0.004),
    "extension": (import_extension, 0.004),
    "numpy": (import_numpy, 0.1),
}


def one(situation: str, sender: str, error: type[BaseException], seed: int) -> dict[str, Any]:
    """Have one alarm go off in this process; return what became of it."""
    work, longest = SITUATIONS[situation]
    alarm = Alarm(error, random.Random(seed).uniform(0.0002, longest))
    sys.unraisablehook = alarm.unraisable
    became = "lost"
    try:
        getattr(alarm, f"by_{sender}")()
        work(alarm)
        for _ in range(1000):  # one that is still on its way comes at the next step of a loop
            pass
    except error:
        became = "arrived"
    except BaseException as other:
        became = f"became {type(other).__name__}"
    # A built-in error may tell the import system that something is not there, guarded or not.
    is_pythons = error is not TimeLimit and alarm.place == "import system"
    if became != "arrived" and (alarm.is_unraisable or is_pythons):
        became = "lost by Python"
    return {"became": became, "place": alarm.place}


def in_a_fork(*arguments: Any) -> dict[str, Any]:
    """Run `one` in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            os.write(writing, json.dumps(one(*arguments)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    ends = time.monotonic() + LONGEST
    with open(reading, "rb") as pipe:
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > ends:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return {"became": "hangs", "place": "unknown"}
            time.sleep(0.0005)
        return json.loads(pipe.read() or b'{"became": "died", "place": "unknown"}')


def extension_of_python() -> str:
    """Return the file of a small extension module of Python's own."""
    folder = sysconfig.get_config_var("DESTSHARED") or ""
    for name in ("_bisect", "_json", "_opcode", "_queue"):  # any may be part of the interpreter
        for file in glob.glob(os.path.join(folder, f"{name}.*")):
            return file
    raise FileNotFoundError(f"no small extension module in {folder}")


def main() -> None:
    """Run as many alarms as asked for."""
    global EXTENSION
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mode", default="fix")
    parser.add_argument("--situation", choices=SITUATIONS, default="ctypes")
    parser.add_argument("--sender", choices=("signal", "thread"), default="signal")
    parser.add_argument("--error", default="TimeLimit", help="TimeLimit, or a built-in class")
    parser.add_argument("--alarms", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--extension", help="a copy of an extension outside the standard library")
    asked = parser.parse_args()
    EXTENSION = asked.extension or extension_of_python()
    if asked.mode != "off":
        import cudaguard

        cudaguard.install(asked.mode)
    error = TimeLimit if asked.error == "TimeLimit" else getattr(builtins, asked.error)
    ends = {"arrived": 0, "lost by Python": 0, "changed": {}, "lost": {}}
    for number in range(asked.alarms):
        end = in_a_fork(asked.situation, asked.sender, error, asked.seed + number)
        became, place = end["became"], end["place"]
        if became in ends and became != "lost":
            ends[became] += 1
        else:
            kind = ends["changed" if became.startswith("became") else "lost"]
            where = f"{became} ({place})"
            kind[where] = kind.get(where, 0) + 1
    print(json.dumps(ends))


EXTENSION = ""

if __name__ == "__main__":
    main()
