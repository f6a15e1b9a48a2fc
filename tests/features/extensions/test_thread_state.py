"""Libraries that change the thread that loads them: how it computes, where it may run."""

from __future__ import annotations

import os
import platform

import pytest

from .conftest import TO_THE_END

# Machine -> what a library linked with -ffast-math does when it is loaded, and FE_DOWNWARD.
MACHINES = {
    "x86_64": ("__builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040)", 0x400),
    "aarch64": ("__builtin_aarch64_set_fpcr(__builtin_aarch64_get_fpcr() | 1 << 24)", 0x800000),
}
FLUSH, DOWN = MACHINES.get(platform.machine(), ("", 0))
BEGIN = f"__attribute__((constructor)) static void begin(void) {{ {FLUSH}; }}"
PROGRAM = """
import cudaguard, sys, ctypes
cudaguard.install({mode!r}).mode
ctypes.CDLL(None).fesetround({down})  # what else the thread has set stays
tiny, half = sys.float_info.min, 0.5
import fast
print(tiny * half == 0.0, ctypes.CDLL(None).fegetround() == {down})
if sys.argv[1:]:
    ctypes.CDLL(None).fesetenv(ctypes.c_void_p(-1))  # as the remedy says
    print(tiny * half == 0.0)
"""


@pytest.mark.skipif(not FLUSH, reason="how this machine flushes is not known")
@pytest.mark.parametrize("mode", ["fix", "warn", "observe", "off"])
def test_library_that_flushes_subnormal_numbers(build, child, mode):
    build.module("fast", body=BEGIN)
    program = PROGRAM.format(mode=mode, down=DOWN)
    done = child.python(program)
    assert done.stdout.split() == [str(mode != "fix"), "True"]
    assert ("CG827] fast switches" in done.stderr) == (mode == "warn")
    silenced = child.python(
        PROGRAM.format(mode=mode, down=DOWN), "x", env={"CUDAGUARD_RULES": "-CG827"}
    )
    assert (silenced.stdout.split(), silenced.stderr) == (["True", "True", "False"], "")


HANDLER = """
import ctypes, os, signal, sys, threading
signal.signal(signal.SIGTERM, lambda *_: print("saved"))
signal.signal(signal.SIGUSR1, lambda *_: print("seen"))
import cudaguard
cudaguard.install({mode!r})
from paddle import here
os.kill(os.getpid(), signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGTERM)
"""
ODD = """
import ctypes
class Odd:
    def __bool__(self): raise ValueError
    def __call__(self, *_): print("saved")
def flags():
    action = (ctypes.c_char * 512)()
    ctypes.CDLL(None).sigaction(15, None, action)
    return bytes(action)[136:140]  # sa_flags
"""
TAKES = """
#include <signal.h>
#include <unistd.h>
static void theirs(int number) { (void)!write(1, "theirs\\n", 7); }
__attribute__((constructor)) static void begin(void) { signal(SIGTERM, theirs); }
"""


@pytest.mark.parametrize("mode", ["fix", "warn", "off"])
def test_import_that_takes_a_signal_from_the_handler_of_the_program(build, child, mode):
    build.module("taking", body=TAKES)
    child.write("paddle/__init__.py", "import taking as here, signal\n")
    done = child.python(HANDLER.format(mode=mode), flags=("-u",))
    assert done.stdout.split() == ["seen", "saved" if mode == "fix" else "theirs"]
    said = "[CG827] paddle takes SIGTERM from the handler that this program has set."
    assert (said in done.stderr) == (mode == "warn")


def test_handler_of_the_program_is_back_as_it_was(build, child):
    """Also in another thread, with the flags of its own, and where it is an object that is odd."""
    build.module("taking", body=TAKES)
    child.write("paddle/__init__.py", "import taking as here\n")
    code = HANDLER.format(mode="fix").replace('lambda *_: print("saved")', "Odd()")
    code = code.replace(
        "from paddle import here",
        "signal.siginterrupt(15, False); before = flags()\n"
        "worker = threading.Thread(target=__import__, args=('paddle',))\n"
        "worker.start(); worker.join(); print(flags() == before)",
    )
    done = child.python(ODD + code, flags=("-u",))
    assert (done.stdout.split(), done.stderr) == (["True", "seen", "saved"], "")


PINNED = """
import cudaguard, os
rule = cudaguard.Rule(id="ANY1", watch=("pins",), why="It is watched.")
cudaguard.install({mode!r}, rules=[rule])
import pins
"""


@TO_THE_END
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one CPU core only")
@pytest.mark.parametrize(("cores", "is_told"), [("[min(old)]", True), ("old", False)])
def test_import_that_pins_the_thread_is_named(child, cores, is_told):
    """As torch's OpenMP runtime does by OMP_PROC_BIND, or after NumPy's."""
    child.write(
        "pins.py", f"import os\nold = os.sched_getaffinity(0)\nos.sched_setaffinity(0, {cores})\n"
    )
    assert (
        "CG827] pins pins this thread" in child.python(PINNED.format(mode="fix")).stderr
    ) == is_told
    assert child.python(PINNED.format(mode="observe")).stderr == ""
