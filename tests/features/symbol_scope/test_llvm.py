"""Two copies of LLVM, one of them global: the second one registers its options with the first.

Compiled stand-ins with LLVM's name and LLVM's words: the process aborts for real.
"""

from __future__ import annotations

import signal
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems search per library")
LLVM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char *seen, *option = "use-dereferenceable-at-point-semantics";
void _ZN4llvm2cl6Option11addArgumentEv(const char **self) {
    if (seen && !strcmp(seen, *self)) {
        fprintf(stderr, ": CommandLine Error: Option '%s' registered more than once!\n", *self);
        fprintf(stderr, "LLVM ERROR: inconsistency in registered CommandLine options\n");
        abort();
    }
    seen = *self;
}
__attribute__((constructor)) static void start(void) {
    _ZN4llvm2cl6Option11addArgumentEv(&option);
}
"""
PROGRAM = """
import ctypes, sys
import cudaguard
cudaguard.install({mode!r})
ctypes.CDLL("./libjitter.so", ctypes.{scope})
ctypes.CDLL("./libtriton.so")
print("loaded", cudaguard.status().findings)
"""


@pytest.fixture
def run(child, compiler):
    for name in ("libjitter.so", "libtriton.so"):
        compiler.put(child.folder / name, LLVM)

    def run(mode, scope="RTLD_GLOBAL", **env):
        program = child.write("main.py", PROGRAM.format(mode=mode, scope=scope))
        return child.command(sys.executable, program, env=env, check=False)

    return run


def test_second_copy_keeps_to_itself(run):
    done = run("fix")
    assert (done.stdout, done.stderr) == ("loaded ()\n", "")
    done = run("fix", CUDAGUARD="off")
    assert done.returncode == -signal.SIGABRT
    assert "registered more than once" in done.stderr


def test_it_is_told_before_it_aborts(run):
    done = run("warn")
    assert done.returncode == -signal.SIGABRT
    told, _, _ = done.stderr.partition(": CommandLine Error: ")
    assert (
        "main.py:6: SymbolScopeWarning: [CG812] libtriton.so uses LLVM of libjitter.so instead of "
        "its own." in told
    )
    assert "remove RTLD_GLOBAL from the call at" in told
    assert "abort: 'registered more than once'" in told


def test_local_copies_get_along(run):
    done = run("fix", "RTLD_LOCAL")
    assert (done.stdout, done.stderr) == ("loaded ()\n", "")
