"""A library with a C++ runtime of its own stays global: local scope would break it.

The package `owner` loads `libowner.so` (linked with ``-static-libstdc++``) with RTLD_GLOBAL.
`libother.so` is any C++ library: it brings libstdc++.so.6 into the process.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig

import pytest

from ..extensions.conftest import MODULE

pytestmark = pytest.mark.skipif(
    sys.platform != "linux"
    or platform.machine() not in ("x86_64", "aarch64")
    or not platform.libc_ver()[0].startswith("glibc"),
    reason="STB_GNU_UNIQUE is of glibc on x86-64 and AArch64",
)

SOURCE = """
#include <iostream>
#include <locale>
#include <sstream>
#include <string>
static std::string said;
extern "C" const char *numbers() {
    std::ostringstream out;
    out << 42 << " " << 1.5;
    said = out.str();
    return said.c_str();
}
extern "C" const char *facets() {
    try {
        std::locale c("C");
        bool is = std::use_facet<std::ctype<char>>(c).is(std::ctype_base::alpha, 'a');
        return is ? "alpha" : "wrong";
    } catch (const std::exception &error) { return said = error.what(), said.c_str(); }
}
extern "C" int which() { return 1; }
extern "C" int of_owner() { return which(); }
"""
WRAPPER = 'extern "C" const char *numbers(); extern "C" const char *wrapped() { return numbers(); }'
STATIC = ("-static-libstdc++", "-static-libgcc")
PACKAGE = """
import ctypes, os
path = os.path.join(os.path.dirname(__file__), {library!r})
{load}
library = ctypes.CDLL(path)
library.numbers.restype = library.facets.restype = ctypes.c_char_p
"""
BY_PYTHON = "ctypes.CDLL(path, ctypes.RTLD_GLOBAL)"
BY_C = """
dlopen = ctypes.pythonapi.dlopen
dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
assert dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_GLOBAL)
"""
BY_FLAGS = """
import sys
flags = sys.getdlopenflags()
sys.setdlopenflags(flags | os.RTLD_GLOBAL)
from owner import native
sys.setdlopenflags(flags)
"""
# What the other library computes, then what the package's own does beside it.
USE_OTHER = """
import ctypes
other = ctypes.CDLL("./libother.so")
other.numbers.restype = other.facets.restype = ctypes.c_char_p
def use(library): print(library.numbers().decode(), library.facets().decode())
use(other)
"""
USE = f"{USE_OTHER}use(owner.library)\n"
RIGHT = ["42 1.5 alpha", "42 1.5 alpha"]
SAID = """
import cudaguard
for found in cudaguard.status().findings:
    print("finding", found.id, "[[rules]]" in found.remedy, "-static-libstdc++" in found.remedy)
for entry in cudaguard.status().changes:
    if entry.endswith("(stays)"):
        print("touched", entry)
"""
LOCAL = ({"load_local": "libowner.so*"},)
TOLD = ["finding LOCAL1 False True"]


def install(*actions: dict, mode: str = "fix") -> str:
    rule = f"cudaguard.Rule('LOCAL1', ('owner',), 'Test.', actions={actions!r})"
    return f"import cudaguard; cudaguard.install({mode!r}, rules=[{rule}])"


class Scene:
    def __init__(self, pair, cxx) -> None:
        self.child, self.bare, self.cxx = pair.child, pair.bare, cxx
        cxx.put(self.child.folder / "libother.so", SOURCE)
        self.package()

    def package(self, library="libowner.so", load=BY_PYTHON, flags=STATIC) -> None:
        """Write the package; `flags` are how its library is linked."""
        self.cxx.put(self.child.folder / "owner/libowner.so", SOURCE, *flags)
        code = PACKAGE.format(library=library, load=load)
        self.child.write("owner/__init__.py", code)


@pytest.fixture
def scene(pair, cxx) -> Scene:
    return Scene(pair, cxx)


def test_unguarded_both_work_as_the_library_is_global(scene):
    assert scene.bare("import owner", USE).lines == RIGHT


@pytest.mark.parametrize("mode", ["fix", "warn", "strict"])
def test_rule_leaves_it_global_and_says_why(scene, mode):
    ran = scene.bare(install(*LOCAL, mode=mode), "import owner", USE, SAID)
    assert ran.lines == [*RIGHT, *TOLD]
    assert "owner/libowner.so contains its own C++ runtime" in ran.err
    assert ran.err.count("SymbolScopeWarning") == 1


def test_library_that_brings_it_along_stays_global_as_well(scene):
    folder = scene.child.folder / "owner"
    own = scene.cxx.library("libowner.so", SOURCE, *STATIC)
    flags = (own, "-Wl,-rpath,$ORIGIN", "-nodefaultlibs")
    scene.cxx.put(folder / "libwrapper.so", WRAPPER, *flags)
    load = 'ctypes.CDLL(os.path.join(os.path.dirname(path), "libwrapper.so"), ctypes.RTLD_GLOBAL)'
    scene.package(load=load)
    ran = scene.bare(install({"load_local": "libwrapper.so*"}), "import owner", USE, SAID)
    assert ran.lines == [*RIGHT, *TOLD]


def test_extension_that_brings_it_is_loaded_with_the_flags_that_were_asked_for(scene):
    own = scene.cxx.library("libowner.so", SOURCE, *STATIC)
    name = f"native{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = ("-Wl,--no-as-needed", own, "-Wl,-rpath,$ORIGIN", "-nodefaultlibs")
    scene.cxx.put(
        scene.child.folder / "owner" / name, MODULE.format(name="native", body="", call=""), *flags
    )
    scene.package(load=BY_FLAGS)
    assert scene.bare("import owner", USE).lines == RIGHT
    ran = scene.bare(install(*LOCAL), "import owner", USE, SAID)
    assert ran.lines[:2] == RIGHT
    assert TOLD[0] in ran.lines
    assert "owner.native stays exposed to later libraries" in ran.err


FIRST = "import ctypes; first = ctypes.CDLL('./libfirst.so'); first.numbers()"


@pytest.mark.parametrize("is_late", [False, True])
def test_beside_a_runtime_that_was_there_first_it_is_kept_out_of_the_way(scene, is_late):
    """The library itself fails either way; what is loaded later does not, if it is kept out.

    How it fails is the compiler's affair: no number with GCC 12, a segmentation fault with GCC 16.
    """
    scene.cxx.put(scene.child.folder / "libfirst.so", SOURCE)
    rule = install(*LOCAL)
    ran = scene.bare(
        FIRST, *(("import owner", rule) if is_late else (rule, "import owner")), USE_OTHER
    )
    assert ran.lines == RIGHT[:1]
    assert ran.err == ""
    assert scene.bare(FIRST, "import owner", USE_OTHER, check=False).lines in ([" alpha"], [])


def test_advice_is_no_rule_that_would_break_it(scene):
    for load in (BY_PYTHON, BY_C):
        scene.package(load=load)
        ran = scene.bare("import ctypes, cudaguard; cudaguard.install()", "import owner", USE, SAID)
        assert ran.lines == [*RIGHT, "finding CG812 False True"]


@pytest.mark.parametrize("flags", [(), (*STATIC, "-Wl,--exclude-libs,ALL")])
def test_library_that_shares_the_runtime_or_hides_its_own_is_kept_local(scene, flags):
    scene.package(flags=flags)
    ran = scene.bare(install(*LOCAL), "import owner", USE, SAID)
    assert ran.lines[:2] == RIGHT
    assert ran.lines[2:] == ["touched libowner.so: kept in local symbol scope by LOCAL1 (stays)"]
    assert ran.err == ""


SECOND = """
import ctypes, os
path = os.path.join(os.path.dirname(__file__), "libstdc++.so.6")
try: assert not ctypes.CDLL(path, os.RTLD_NOLOAD)
except OSError: pass
library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
"""
COUNT = """
files = {line.split()[-1] for line in open("/proc/self/maps") if "libstdc++" in line}
print(len(files), owner.library._name == owner.path)
"""


@pytest.mark.parametrize("mode", ["fix", "warn"])
@pytest.mark.parametrize("is_newer", [False, True])
def test_second_file_of_the_runtime(scene, mode, is_newer):
    """A package opens the one that it brings: the process keeps to the first, if that has all."""
    folder = scene.child.folder / "owner"
    if is_newer:
        names = scene.child.write("names.map", "GLIBCXX_99 { global: _ZNSt5facetE2idE; };")
        flags = (f"-Wl,--version-script={names}", "-Wl,-soname,libstdc++.so.6")
        source = 'int one __asm__("_ZNSt5facetE2idE");'
        scene.cxx.put(folder / "libstdc++.so.6", source, *flags)
    else:
        command = [scene.cxx.command, "-print-file-name=libstdc++.so.6"]
        file = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        shutil.copy(file, folder)
    scene.child.write("owner/__init__.py", SECOND)
    code = "import ctypes; ctypes.CDLL('./libother.so')", "import owner", COUNT
    assert scene.bare(*code).lines == ["2 True"]
    ran = scene.bare(install(*LOCAL, mode=mode), *code)
    if mode == "fix" and not is_newer:
        assert (ran.lines, ran.err) == (["1 True"], "")
    else:
        assert ran.lines == ["2 True"]
        assert "[CG813] libstdc++.so.6 is loaded a second time, from another file." in ran.err
        assert "import owner before other packages in C++" in ran.err


RENAMED = "libstdc++-mine.so.6"


@pytest.mark.parametrize("order", [(FIRST, "import owner"), ("import owner",)])
def test_runtime_of_another_name_is_kept_to_itself(scene, order):
    """As tools rename the libstdc++ that they put into a wheel: it and the system's both work."""
    whole = ("-Wl,--whole-archive", "-l:libstdc++.a", "-Wl,--no-whole-archive")
    rest = ("-nodefaultlibs", "-lm", "-lc", "-lgcc_s", "-lgcc")
    flags = (f"-Wl,-soname,{RENAMED}", *whole, *rest)
    runtime = scene.cxx.put(scene.child.folder / "owner" / RENAMED, "", *flags)
    scene.package(flags=(runtime, "-Wl,-rpath,$ORIGIN", *rest), load="")
    scene.cxx.put(scene.child.folder / "libfirst.so", SOURCE)
    assert scene.bare(*order, USE, check=False).lines != RIGHT
    ran = scene.bare(install(), *order, USE, SAID)
    assert (ran.lines[:2], ran.err) == (RIGHT, "")
    assert f"{RENAMED}: mapped from a copy in memory" in ran.lines[2]
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))"
    assert "not repaired: the size of files is" in scene.bare(limit, install(), "import owner").err
    told = scene.bare(install(mode="warn"), "import owner").err
    assert f"[CG813] libowner.so uses its own C++ runtime, {RENAMED}." in told
