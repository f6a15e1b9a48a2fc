"""Libraries of two wheels with one name, built for other libraries: each package gets its own.

`libhl-0a1b2c3d.so` plays libhdf5_hl of h5py and netCDF4, `libbase-...` the libhdf5 of each. The
extension of the first package needs both, that of the second one only what needs them.
"""

from __future__ import annotations

import shutil
import sys

import pytest

from cudaguard.elf.reader import PT_DYNAMIC, ElfFile

from ...hooks.conftest import compiler as compiler
from ...native_fixtures import GLIBC_ONLY

pytestmark = GLIBC_ONLY

HL = "libhl-0a1b2c3d.so"
CODE = """
import cudaguard; cudaguard.install({!r})
{}
import {}, {}
print(first.ask(), second.ask())
print(*(one for one in cudaguard.status().changes if "CG843" in one))
"""


@pytest.fixture
def run(child, compiler):
    """Builds both packages and runs a program that imports them."""

    def build(package, number, bases):
        folder = child.folder / f"{package}.libs"

        def library(name, source, *needed):
            flags = (f"-Wl,-soname,{name}", "-Wl,--no-as-needed", *map(str, needed))
            return compiler.put(folder / name, source, *flags)

        name = f"libbase-{bases[number - 1] * 8}.so"
        low = library(name, f"int base(void) {{ return {number}; }}")
        high = library(HL, "int base(void); int high(void) { return base(); }", low)
        source = "int high(void); int middle(void) { return high(); }"
        needed = (high, low)
        if package == "second":
            needed = (library(f"libmiddle-{'3' * 8}.so", source, high, low),)
        flags = ("-Wl,--no-as-needed", *map(str, needed), f"-Wl,-rpath-link,{folder}")
        flags += (f"-Wl,-rpath,$ORIGIN/{package}.libs", "-Wl,--disable-new-dtags")
        function = "middle" if package == "second" else "high"
        shutil.copy(compiler.asking(package, function, *flags), child.folder)

    def run(mode, *order, bases="12", code="", first=""):
        if not (child.folder / "first.libs").exists():
            build("first", 1, bases)
            build("second", 2, bases)
            compiler.put(child.folder / "libomp.so", "int one;")
        done = child.command(sys.executable, "-c", CODE.format(mode, first, *order) + code)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


LOOKS = "import ctypes; ctypes.CDLL('./libomp.so')"  # of which there should be one


@pytest.mark.parametrize("first", ["", LOOKS])
@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_each_package_gets_its_own(run, order, first):
    (red, nothing) = run("off", *order)
    assert (red, nothing) == ("1 1" if order[0] == "first" else "2 2", "")
    for mode in ("fix", "strict"):
        answers, said = run(mode, *order, first=first)
        assert answers == "1 2"
        assert f"gets its own {HL}, not that of " in said
    assert run("observe", *order) == [red, ""]


BY_CTYPES = """
import ctypes, sys, sysconfig, second
library = ctypes.PyDLL(f"./first{sysconfig.get_config_var('EXT_SUFFIX')}")
library.PyInit_first.restype = ctypes.py_object
sys.modules["first"] = library.PyInit_first()
"""


def test_library_by_ctypes_gets_its_own(run):
    """It keeps the name that the program gave."""
    name = "print(library._name[:7])"
    assert run("off", "second", "first", first=BY_CTYPES, code=name) == ["2 2", "", "./first"]
    answers, said, name = run("fix", "second", "first", first=BY_CTYPES, code=name)
    assert (answers, name) == ("1 2", "./first")
    assert f"gets its own {HL}, not that of " in said


def test_same_soname_that_needs_the_same_is_shared(run):
    """As libgfortran of numpy's and scipy's wheels."""
    assert run("fix", "first", "second", bases="11") == ["1 1", ""]


AGAIN = """
import ctypes, os, sys
first.mark = ctypes.CDLL(first.__file__) and sys.modules.pop("first").ask
import first as again
files = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
print(again.ask(), first.mark == again.ask, [file for file in files if "memfd" in file])
"""


def test_extension_that_comes_again(run):
    """It is mapped as it was, and no file stays open; by ctypes as well."""
    assert run("fix", "second", "first", code=AGAIN)[-1] == "1 True []"


def test_file_that_is_no_library_is_let_be(run, child):
    """The kernel reads what an extension needs, before the loader refuses it."""
    run("off", "first", "second")
    file = child.folder / "second.libs" / HL
    data = bytearray(file.read_bytes())
    with ElfFile(str(file)) as elf:
        _, _, place, _, size, _ = next(part for part in elf.segments if part[0] == PT_DYNAMIC)
    data[place : place + size] = bytes(size)
    file.write_bytes(data)
    assert run("fix", "first", "second") == ["1 1", ""]
