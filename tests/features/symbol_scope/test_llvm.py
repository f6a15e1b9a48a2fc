"""Two copies of LLVM, one of them global: the second one registers its options with the first.

Compiled stand-ins with LLVM's name and LLVM's words: the process aborts for real.
"""

from __future__ import annotations

import shutil
import signal
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="names are searched per library elsewhere"
)
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
cudaguard.install()
ctypes.CDLL("./libjitter.so", ctypes.{mode})  # first
print([finding.id for finding in cudaguard.status().findings], flush=True)
ctypes.CDLL("./libtriton.so")
print("loaded")
"""


@pytest.fixture
def run(child, compiler):
    for name in ("libjitter.so", "libtriton.so"):
        shutil.copy(compiler.library(name, LLVM), child.folder)

    def run(mode, **env):
        program = child.write("main.py", PROGRAM.format(mode=mode))
        return child.command(sys.executable, program, env=env, check=False)

    return run


def test_global_copy_is_told_before_the_second_one_aborts(run):
    done = run("RTLD_GLOBAL")
    assert done.returncode == -signal.SIGABRT
    assert done.stdout == "['CG812']\n"
    told, _, after = done.stderr.partition(": CommandLine Error: ")
    assert "main.py:5: SymbolScopeWarning: [CG812] " in told
    assert "libjitter.so" in told
    assert "abort: 'registered more than once'" in told
    assert "registered more than once" in after
    assert "CG812" not in run("RTLD_GLOBAL", CUDAGUARD="off").stderr


def test_local_copies_get_along(run):
    done = run("RTLD_LOCAL")
    assert (done.stdout, done.stderr) == ("[]\nloaded\n", "")
