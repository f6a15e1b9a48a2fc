"""The owners of names as they are read from memory, beside what ``dlsym`` says.

Each program reads them before it imports ctypes, and asks the loader then.
"""

from __future__ import annotations

import shutil
import sys

import pytest

from cudaguard.elf.process import uses_glibc

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not uses_glibc(), reason="about glibc"
)
READ = """
import sys
from cudaguard.elf.process import Memory
from cudaguard.elf.symbols import GlobalNames
from cudaguard.features.symbol_scope.detector import CANARIES
from cudaguard.system.loader_list import LoaderList

MORE = ["malloc", "memcpy", "cos", "inflate", "deflate", "PyLong_FromLong", "regexec", "dlopen",
        "pthread_cond_wait", "realpath", "_r_debug", "environ", "nobody_has_this", "mark", "weak",
        "hidden", "old_one", "new_one", "kept"]
NAMES = [name.encode() for name, _ in CANARIES] + [name.encode() for name in MORE]
loader, names = LoaderList(), GlobalNames(NAMES)

def read():
    loader.look()
    with Memory() as memory:
        return names.owners(memory, loader.scope)

first = read()
assert "ctypes" not in sys.modules and loader.has_scope

import ctypes, os
from cudaguard.elf.resident import Resident

def compare(owners):
    with Resident() as resident:
        for name, owner in zip(NAMES, owners):
            address = resident.address(resident.program, name)
            said = os.path.realpath(resident.owner(resident.program, name))
            if owner is None or not address:
                assert owner is None and not address, (name, owner, address)
            elif owner.path:
                assert owner.file == said, (name, owner, said)
            else:
                assert said == os.path.realpath(sys.executable), (name, owner, said)

compare(first)
def load(path, mode=ctypes.RTLD_GLOBAL):
    library = ctypes.CDLL(path, mode)
    compare(read())
    return library
"""
ONE = """
int mark(void) { return 1; }
int weak(void) __attribute__((weak));
int weak(void) { return 1; }
int hidden(void) __attribute__((visibility("hidden")));
int hidden(void) { return 1; }
"""
TWO = ONE.replace("return 1", "return 2") + "int kept(void) { return hidden(); }\n"
VERSIONED = """
int old_a(void) { return 1; }
__asm__(".symver old_a, old_one@OLD");
int new_a(void) { return 1; }
int new_b(void) { return 2; }
__asm__(".symver new_a, new_one@OLD");
__asm__(".symver new_b, new_one@@NEW");
"""


@pytest.fixture
def scene(child, compiler, tmp_path):
    versions = tmp_path / "versions"
    versions.write_text("OLD { global: *; };\nNEW { global: new_one; } OLD;\n", encoding="utf-8")
    for name, source, *flags in (
        ("libone.so", ONE),
        ("libtwo.so", TWO),
        ("libold.so", ONE, "-Wl,--hash-style=sysv"),
        ("libversioned.so", VERSIONED, f"-Wl,--version-script={versions}"),
    ):
        shutil.copy(compiler.library(name, source, *flags), child.folder)
    return child


AFTER_ONE_IS_CLOSED = """
import _ctypes
one = load('./libone.so'); load('./libtwo.so')
_ctypes.dlclose(one._handle); compare(read()); load('./libold.so')
"""
COMING_AND_GOING = """
import _ctypes
for _ in range(20):
    for library in (load('./libone.so'), load('./libtwo.so')):
        _ctypes.dlclose(library._handle); compare(read())
"""


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "load('./libone.so'); load('./libtwo.so')",
        "load('./libtwo.so'); load('./libone.so')",
        "load('./libold.so'); load('./libtwo.so')",
        "load('./libversioned.so')",
        "load('./libone.so', 0); load('./libtwo.so'); load('./libone.so')",  # becomes global late
        "load('libstdc++.so.6'); load('libz.so.1')",
        AFTER_ONE_IS_CLOSED,
        COMING_AND_GOING,
    ],
)
def test_owners_are_those_that_dlsym_finds(scene, code):
    assert scene.python(READ + code + "\nprint('end')").stdout == "end\n"


def test_preloaded_library_is_the_first(scene):
    own = "[one.path for one in first if one and os.getcwd() in one.path]"
    code = READ + f"print([os.path.basename(path) for path in {own}])"
    ran = scene.python(code, env={"LD_PRELOAD": f"{scene.folder}/libone.so"})
    assert ran.stdout == "['libone.so', 'libone.so']\n"


def test_change_that_maps_nothing_is_news(scene):
    code = """
load('./libone.so', 0)
before = loader.look()
assert loader.look() == before
load('./libone.so')
print(loader.look() - before)
"""
    assert scene.python(READ + code).stdout == "1\n"
