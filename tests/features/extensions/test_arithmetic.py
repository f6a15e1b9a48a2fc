"""A library that changes how the thread that loads it computes, as those of -ffast-math do."""

from __future__ import annotations

import platform

import pytest

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the stand-in is for x86-64"
)
BEGIN = """
#include <xmmintrin.h>
__attribute__((constructor)) static void begin(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
"""
PROGRAM = """
import cudaguard, sys
cudaguard.install({mode!r}).mode
tiny, half = sys.float_info.min, 0.5
import fast
print(tiny * half == 0.0)
import ctypes
ctypes.CDLL(None).fesetenv(ctypes.c_void_p(-1))  # as the remedy says
print(tiny * half == 0.0)
"""


@pytest.mark.parametrize("mode", ["fix", "warn", "observe", "off"])
def test_library_that_flushes_subnormal_numbers_is_named(build, child, mode):
    build.module("fast", body=BEGIN)
    done = child.python(PROGRAM.format(mode=mode))
    assert done.stdout.split() == ["True", "False"]  # it is told, and left to the program
    assert ("CG827] fast switches" in done.stderr) == (mode in ("fix", "warn"))
