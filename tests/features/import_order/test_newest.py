"""The environment's newer copy of a library is loaded before an older one of the system.

`libshim.so.6` plays libstdc++: each release has all the names of the one before, with versions, and
the first copy that is mapped decides for the process. conda's is in ``lib`` of ``sys.prefix``.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from cudaguard.elf.reader import CXX_RUNTIME

from ...native_fixtures import GLIBC_ONLY

pytestmark = GLIBC_ONLY

SHIM = "libshim.so.6"
NAMES = {1: "SHIM_1 { global: shim_one; local: *; };", 2: "SHIM_2 { global: shim_two; } SHIM_1;"}
RULE = """
import os, sys
sys.prefix = os.path.abspath("conda")
import cudaguard
rule = cudaguard.Rule("CG047", ("bigpackage",), "the newest is right for everybody",
                      actions=({"preload_newest": "libshim.so.6"},))
cudaguard.install(MODE, rules=[rule])
"""
ASK = """
import pip_one
print("pip", pip_one.ask())
try:
    import conda_two
    print("conda", conda_two.ask())
except ImportError as error:
    print("not found" if "`SHIM_2' not found" in str(error) else error)
"""
MAPPED = """
with open("/proc/self/maps") as maps:
    print(*sorted({line.split("/")[-2] for line in maps if "libshim" in line}))
"""
SAID = "print(*[one for one in cudaguard.status().changes if 'CG047' in one])"


class Scene:
    """Two copies of the library, and an extension that leads to each."""

    def __init__(self, child, compiler):
        self.child, self.compiler = child, compiler
        self.folder = Path(os.path.realpath(child.folder))
        self.old = self.shim("system", 1, "6.0.28")
        new = self.shim("conda/lib", 2, "6.0.33")
        self.extension("pip_one", "shim_one", self.old, "$ORIGIN/system")
        self.extension("conda_two", "shim_two", new, "$ORIGIN/conda/lib")

    def shim(self, folder, release, version):
        source = "int shim_one(void) { return 1; }\n"
        source += "int shim_two(void) { return 2; }\n" if release > 1 else ""
        script = self.child.write("names.map", "\n".join(NAMES[n] for n in range(1, release + 1)))
        flags = (f"-Wl,-soname,{SHIM}", f"-Wl,--version-script={script}")
        target = self.compiler.put(self.folder / folder / f"libshim.so.{version}", source, *flags)
        (target.parent / SHIM).symlink_to(target.name)
        return target

    def extension(self, name, function, library, folder):
        flags = (str(library), f"-Wl,-rpath,{folder}", "-Wl,--enable-new-dtags")
        shutil.copy(self.compiler.asking(name, function, *flags), self.folder)

    def run(self, code, mode="fix", **variables):
        program = self.child.write("program.py", RULE.replace("MODE", repr(mode)) + code)
        return self.child.command(sys.executable, program, env=variables)


@pytest.fixture
def scene(child, compiler):
    return Scene(child, compiler)


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_newest_is_first(scene, mode):
    assert scene.run(ASK, "off").stdout.splitlines() == ["pip 1", "not found"]
    done = scene.run(ASK + MAPPED + SAID, mode)
    *lines, said = done.stdout.splitlines()
    assert lines == ["pip 1", "conda 2", "lib"]
    assert said.endswith("loaded before pip_one, as the newest copy by CG047 (stays)")
    assert done.stderr == ""


LATER = """
sys.path.insert(0, os.path.abspath("site-packages"))
import pip_one
print("pip", pip_one.ask())
"""
IMPORT = """
try:
    import bringing.part
except ImportError as error:
    print("not found" if "`SHIM_2' not found" in str(error) else error)
"""


def test_package_that_comes_later_has_the_newest(scene):
    new = scene.shim("site-packages/bringing", 2, "6.0.33")
    new = new.rename(new.parent / SHIM)  # such packages bring no other name
    shutil.rmtree(scene.folder / "conda")
    scene.child.write("site-packages/bringing/__init__.py", "")
    scene.extension("part", "shim_two", new, "$ORIGIN")
    (part,) = scene.folder.glob("part.*")
    part.rename(scene.folder / "site-packages/bringing" / part.name)
    assert scene.run(LATER + IMPORT, "off").stdout.splitlines() == ["pip 1", "not found"]
    done = scene.run(LATER + IMPORT + MAPPED)
    assert (done.stdout.splitlines(), done.stderr) == (["pip 1", "bringing"], "")
    assert scene.run(LATER + MAPPED).stdout.splitlines() == ["pip 1", "system"]  # it never comes
    ask = f"print(cudaguard.check_extension('site-packages/bringing/{part.name}').remedy)"
    told = scene.run(LATER + ask, "warn").stdout.splitlines()[-1]
    assert told == "import bringing, which gets a newer one, before packages that load it"


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_other_modes_change_nothing_and_are_silent(scene, mode):
    assert scene.run(ASK + MAPPED, mode).stdout.splitlines() == ["pip 1", "not found", "system"]


GLOBAL = """
import ctypes, os
ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libglobal_deps.so"), ctypes.RTLD_GLOBAL)
from built_here import ask
"""


@pytest.fixture
def built_from_source(scene):
    """A package that a newer compiler has built, and that opens an older one's library first."""
    new = scene.shim("gcc/lib64", 2, "6.0.34")
    shutil.rmtree(scene.folder / "conda")
    scene.extension("built_here", "shim_two", new, "$ORIGIN/gcc/lib64")
    scene.child.write("bigpackage/__init__.py", GLOBAL)
    for name, function, library, folder in (
        ("libglobal_deps.so", "shim_one", scene.old, "system"),
        ("libbig.so", "shim_two", new, "gcc/lib64"),
    ):
        flags = (str(library), f"-Wl,-rpath,$ORIGIN/../../{folder}", "-Wl,--enable-new-dtags")
        source = f"int {function}(void); int call(void) {{ return {function}(); }}"
        scene.compiler.put(scene.folder / "bigpackage/lib" / name, source, *flags)
    return scene


def test_what_the_libraries_of_the_package_lead_to(built_from_source):
    """As libtorch_python.so of a torch that Spack built, whose CUDA leads to the system's."""
    code = "import bigpackage\nprint(bigpackage.ask())"
    done = built_from_source.run(code + MAPPED)
    assert (done.stdout, done.stderr) == ("2\nlib64\n", "")
    failing = f"try:\n    {code.partition(chr(10))[0]}\nexcept ImportError as error: print(error)"
    assert "`SHIM_2' not found" in built_from_source.run(failing, "off").stdout


def test_before_a_watched_module(scene):
    scene.child.write("bigpackage.py", "import pip_one")
    done = scene.run("import bigpackage" + MAPPED)
    assert (done.stdout, done.stderr) == ("lib\n", "")


def test_file_without_the_link_that_the_loader_needs(scene):
    """As in an environment that lost libstdc++.so.6 and has libstdc++.so.6.0.34."""
    (scene.folder / "conda/lib" / SHIM).unlink()
    assert scene.run(ASK, "off").stdout.splitlines() == ["pip 1", "not found"]
    assert scene.run(ASK).stdout.splitlines() == ["pip 1", "conda 2"]


def test_an_older_one_of_the_environment_is_let_be(scene):
    (scene.folder / "conda/lib/libshim.so.6.0.33").rename(
        scene.folder / "conda/lib/libshim.so.6.0.2"
    )
    assert scene.run("import pip_one" + MAPPED).stdout == "system\n"


@pytest.mark.parametrize(("older", "newer"), [("system", "conda/lib"), ("conda/lib", "system")])
def test_their_names_tell_where_their_files_do_not(scene, older, newer):
    """As of libgomp.so.1.0.0, and of a libtbb.so.12 that a wheel brings."""
    files = [scene.folder / "conda/lib" / SHIM, scene.folder / "system" / SHIM]
    one, two = (file.resolve() for file in files)
    for file, source in zip(files, (one, two) if newer == "conda/lib" else (two, one)):
        source.rename(scene.folder / f"{file.parent.name}.so")
        file.unlink()
    for file in files:
        (scene.folder / f"{file.parent.name}.so").rename(file)
    code = "import pip_one\nprint(pip_one.ask())" + MAPPED
    assert scene.run(code, "off").stdout.splitlines()[-1] == "system"
    assert scene.run(code).stdout.splitlines() == ["1", newer.rpartition("/")[2]]


def test_folder_of_the_variable_is_what_somebody_wants(scene):
    done = scene.run("import pip_one" + MAPPED, LD_LIBRARY_PATH=str(scene.old.parent))
    assert done.stdout == "system\n"


def test_what_is_mapped_stays(scene):
    code = f"import ctypes\nctypes.CDLL({str(scene.old)!r})\nimport pip_one" + MAPPED
    assert scene.run(code).stdout == "system\n"


def test_package_that_brings_an_old_copy_of_its_own(child, compiler):
    """As wheels do that bring libstdc++.so.6 by that name; the system's is newer."""
    names = "GLIBCXX_3.4 { global: _ZSt4endlIcSt11char_traitsIcEERSt13basic_ostreamIT_T0_ES6_; };"
    script = child.write("names.map", names)
    source = 'void endl(void) __asm__("{}"); void endl(void) {{}}\n'
    source = source.format(names.split()[3].rstrip(";"))
    flags = (f"-Wl,-soname,{CXX_RUNTIME}", f"-Wl,--version-script={script}")
    old = compiler.put(child.folder / "bringing" / CXX_RUNTIME, source, *flags)
    for name, more in (
        ("bringing", ("-Wl,--no-as-needed", str(old), "-Wl,-rpath,$ORIGIN/bringing")),
        ("modern", ("-Wl,--no-as-needed", "-l:libstdc++.so.6")),
    ):
        shutil.copy(compiler.asking(name, "getpid", *more), child.folder)
    program = "import cudaguard; cudaguard.install(MODE)\nimport bringing, modern\n"
    program += (
        "print([line.split()[-1] for line in open('/proc/self/maps') if 'libstdc++' in line][0])"
    )
    off, fix = (
        child.command(sys.executable, "-c", program.replace("MODE", repr(mode)))
        for mode in ("off", "fix")
    )
    assert off.stdout.strip() == f"{child.folder}/bringing/{CXX_RUNTIME}"
    assert fix.stdout.strip() not in ("", off.stdout.strip())
    assert fix.stderr == ""
