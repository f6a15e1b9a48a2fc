"""A fault that `fix` finds is found in the modes that only look, too.

An extension that exports a name by which libjpeg is told is loaded with RTLD_GLOBAL, as
``sys.setdlopenflags`` says. The program has not imported ctypes.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="names are searched per library elsewhere"
)
TAKING = """
#include <Python.h>
void jpeg_CreateDecompress(void) {}
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "taking", 0, -1, 0};
PyMODINIT_FUNC PyInit_taking(void) { return PyModule_Create(&definition); }
"""
TAKE = """
import os, sys
assert "ctypes" not in sys.modules
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
import taking
sys.setdlopenflags(os.RTLD_NOW)
"""
FOUND = "print([finding.id for finding in cudaguard.status().findings])"
MODES = ["observe", "warn", "fix"]


@pytest.fixture
def taking(native, compiler):
    """The extension in the children's folder."""
    name = f"taking{sysconfig.get_config_var('EXT_SUFFIX')}"
    built = compiler.library(name, TAKING, f"-I{sysconfig.get_path('include')}")
    shutil.copy(built, native.child.folder)
    return native


def is_told(ran, mode: str) -> None:
    """The extension is found, and warned of unless the mode is a silent one."""
    assert ran.lines == ["['CG812']"]
    assert ran.err.count("SymbolScopeWarning: [CG812] ") == (mode != "observe")


@pytest.mark.parametrize("mode", MODES)
def test_extension_that_becomes_global_is_found_without_ctypes(taking, mode):
    ran = taking.bare(f"import cudaguard; cudaguard.install({mode!r})", TAKE, FOUND)
    is_told(ran, mode)


@pytest.mark.parametrize("mode", MODES)
def test_it_is_found_in_a_block_that_ends_before_ctypes_comes(taking, mode):
    block = f"""
import cudaguard
with cudaguard.guard({mode!r}):
    exec(TAKE)
import ctypes
"""
    ran = taking.bare(f"TAKE = {TAKE!r}", block, FOUND)
    is_told(ran, mode)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_found_where_no_name_is_taken(taking, mode):
    taking.extension("one")
    plain = TAKE.replace("import taking", "import one")
    ran = taking.bare(f"import cudaguard; cudaguard.install({mode!r})", plain, FOUND)
    assert (ran.lines, ran.err) == (["[]"], "")
