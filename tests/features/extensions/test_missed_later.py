"""A load that a package swallows, and the error that follows from it: the load is the cause."""

from __future__ import annotations

import pytest

IMPORTS = """
try:
    from pkg import _C
except ImportError:
    {otherwise}
def work(): return {use}
"""
OPENS = """
import ctypes, os
try:
    lib = ctypes.CDLL(os.path.join(os.path.dirname(__file__), {file!r}))
except OSError:
    lib = None
def work(): return {use}
"""
PROGRAM = "import cudaguard\ncudaguard.install({mode!r})\nimport pkg\nprint('goes on')\n{use}\n"


@pytest.fixture
def run(build, child):
    def run(source, use="pkg.work()", mode="fix"):
        child.write("pkg/__init__.py", source)
        calls, absent = "int frob_cuda(void);", build.library("libabsent.so.1")
        for built in (
            build.module("_C", "-Wl,-z,now", call="frob_cuda();", body=calls),
            build("plain.so", "int absent_f(void); int g(void) { return absent_f(); }", absent),
        ):
            built.rename(child.folder / "pkg" / built.name)
        absent.unlink()
        done = child.python(PROGRAM.format(mode=mode, use=use), check=False)
        assert done.stdout == "goes on\n", done.stderr
        return done.stderr

    return run


FOLLOWS = {
    "a name that is not defined": IMPORTS.format(otherwise="pass", use="_C.op()"),
    "a part of None": IMPORTS.format(otherwise="_C = None", use="_C.op()"),
    "an error that names it": IMPORTS.format(
        otherwise="_C = 0", use="exec('import pkg; pkg._C = 1; del pkg._C; pkg._C')"
    ),
    "a function of a library that is None": OPENS.format(file="plain.so", use="lib.g()"),
}


@pytest.mark.parametrize("source", FOLLOWS.values(), ids=FOLLOWS)
def test_load_that_was_swallowed_is_told_with_the_error_that_follows(run, source):
    told = run(source)
    assert "`frob_cuda`" in told or "libabsent.so.1" in told
    assert "and this error probably follows from that." in told
    assert "The package went on" not in run(source, mode="off")


APART = {
    "nothing follows": "",
    "an error of another kind": "raise ValueError('bad lookup')",
    "a name that the program itself lacks": "undefined_name",
    "something of the program's that is None": "(lambda x: x.upper())(None)",
}


@pytest.mark.parametrize("use", APART.values(), ids=APART)
def test_error_that_does_not_follow_is_printed_as_ever(run, use):
    assert "CG8" not in run(FOLLOWS["a name that is not defined"], use)
