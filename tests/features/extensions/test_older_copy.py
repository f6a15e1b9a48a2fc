"""A library that gets an older copy of another one, be it by LD_LIBRARY_PATH or by who came first.

As in pytorch/pytorch#111469: libcusparse needs a function of libnvJitLink that an older one lacks.
The libraries are stand-ins of those names; the loader, its words and its order are real.
"""

from __future__ import annotations

import sys
import sysconfig

import pytest

from .conftest import Builder

SYMBOL = "__nvJitLinkComplete_12_4"
PACKAGE = """
import ctypes, os
HERE = os.path.dirname(__file__)
sparse = ctypes.CDLL(os.path.join(HERE, "lib", "libcusparse.so.12"))  # fails
"""


@pytest.fixture
def site(child, tmp_path):
    """A package that opens its libcusparse, and an older libnvJitLink elsewhere."""
    own = Builder(child.folder / "sparsepkg" / "lib")
    version = child.write("v.map", f"libnvJitLink.so.12 {{ global: {SYMBOL}; old_one; }};\n")
    link = "-Wl,-soname,libnvJitLink.so.12"
    with_version = f"-Wl,--version-script={version}"
    source, older = f"int {SYMBOL}(void) {{ return 1; }}", "int old_one(void) { return 2; }"
    good = own("libnvJitLink.so.12", f"{source} {older}", link, with_version)
    source = f"int {SYMBOL}(void); int go(void) {{ return {SYMBOL}(); }}"
    path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN:$ORIGIN/../../nvidia/nvjitlink/lib"
    flags = "-Wl,-soname,libcusparse.so.12", path, "-Wl,-z,now"
    own("libcusparse.so.12", source, good, *flags)
    old = Builder(tmp_path / "old")("libnvJitLink.so.12", older, link, with_version)
    child.write("sparsepkg/__init__.py", PACKAGE)
    child.old = old
    return child


def run(site, program, **env):
    path = site.write("main.py", program)
    return site.command(sys.executable, path, env=env, check=False)


FIRST = "import ctypes\nctypes.CDLL({old!r}, ctypes.RTLD_GLOBAL)\n"
GUARDS = {
    "install": "import cudaguard\ncudaguard.install()\n{first}import sparsepkg\n",
    "guard": "import cudaguard\n{first}with cudaguard.guard():\n    import sparsepkg\n",
    "variable": "{first}import sparsepkg\n",
}


@pytest.mark.parametrize("guard", GUARDS)
def test_which_file_came_first_is_told(site, guard):
    first, env = FIRST.format(old=str(site.old)), {}
    if guard == "variable":  # in `fix` the newer one is loaded: see test_outdated
        first, env = "", {"LD_LIBRARY_PATH": str(site.old.parent), "CUDAGUARD": "warn"}
    done = run(site, GUARDS[guard].format(first=first), **env)
    assert done.returncode == 1
    assert f"undefined symbol: {SYMBOL}" in done.stderr  # the loader's own words stay
    assert str(site.old) in done.stderr.partition("Warning: [CG841]")[2]
    assert "libnvJitLink.so.12" in done.stderr
    assert done.stderr.count("Warning: [CG841]") == 1


WHEELS = {"nvidia-nvjitlink-cu12": "12.1.105", "nvidia-nvjitlink-cu13": "13.0.39"}


@pytest.mark.parametrize(
    ("count", "requires", "fix"),
    [(1, "cu12==12.1.105", "import it before the"), (1, "cu12==12.4.127", "install the one that"),
     (2, "cu13==13.0.39", "install the one that"), (2, "ml==1", "install the newer one again: ")],
)  # fmt: skip
def test_wheel_to_install_is_named(site, count, requires, fix):
    """As NCCL's wheels for CUDA 12 and 13 have one file, which is that of the last installed."""
    inside = "nvidia/nvjitlink/lib/libnvJitLink.so.12"
    (site.folder / inside).parent.mkdir(parents=True)
    site.old.rename(site.folder / inside)
    for name, version in [*WHEELS.items()][:count]:
        site.distribution(name, version, files=(inside,))
    site.distribution("sparsepkg", requires=(f"nvidia-nvjitlink-{requires} ; os_name == 'posix'",))
    (site.folder / "sparsepkg/lib/libnvJitLink.so.12").unlink()
    done = run(site, GUARDS["install"].format(first=""))
    said = done.stderr.partition("Warning: [CG841]")[2]
    assert f"fix: {fix}" in said
    wheel = requires.replace("ml==1", "cu13==13.0.39")
    assert (f" --no-deps nvidia-nvjitlink-{wheel}\n" in said) is ("12.1.105" not in wheel)
    assert ("cu12 12.1.105 and nvidia-nvjitlink-cu13 13.0.39 both contain" in said) is (count == 2)


def test_healthy_package_is_not_spoken_of(site):
    done = run(site, GUARDS["install"].format(first=""))
    assert (done.returncode, done.stderr) == (0, "")


def test_run_explains_it_once(site):
    site.write("main.py", "import sparsepkg\n")
    command = (sys.executable, "-m", "cudaguard", "run", "--mode", "warn", "main.py")
    done = site.command(*command, env={"LD_LIBRARY_PATH": str(site.old.parent)}, check=False)
    assert done.stderr.count("[CG8") == 1
    assert f"[CG841] libcusparse.so.12 needs `{SYMBOL}`" in done.stderr


@pytest.mark.parametrize("is_old_first", [True, False])
def test_commands_look_at_libraries_that_a_package_opens_itself(site, is_old_first):
    env = {"LD_LIBRARY_PATH": str(site.old.parent)} if is_old_first else {}
    command = (sys.executable, "-m", "cudaguard", "check-extension", "sparsepkg")
    done = site.command(*command, env=env, check=False)
    assert done.returncode == is_old_first
    assert ("libcusparse.so.12: would NOT load [older-library]" in done.stdout) is is_old_first
    assert (f"without it: {site.old}" in done.stdout) is is_old_first
    assert "2 checked" in done.stdout
    files = ("sparsepkg/lib/libcusparse.so.12", "sparsepkg/__init__.py")
    site.distribution("sparsepkg", files=files)
    program = "import sys; from cudaguard.tools.main import main; sys.path.insert(0, '.'); main()"
    command = (sys.executable, "-c", program, "doctor", "--only", "CG902")
    done = site.command(*command, env=env, check=False)
    assert (str(site.old) in done.stdout) is is_old_first, done.stdout + done.stderr


MODULE = """
#include <Python.h>
int go(void);
static PyModuleDef def = {PyModuleDef_HEAD_INIT, "ext", 0, -1};
PyMODINIT_FUNC PyInit_ext(void) { PySys_WriteStdout("%d\\n", go()); return PyModule_Create(&def); }
"""
# By itself; by an extension whose DT_RPATH alone leads to what it needs.
BY = {"itself": "print(ctypes.CDLL('render/librender.so').go())", "extension": "import render.ext"}
OLD, OTHER = "int old(void){return 3;}", "int who(void){return 5;} int trace(void){return who();}"


@pytest.fixture(params=BY)
def shapes(child, request):
    """A function that builds two packages, which have another libshape.so.4 each."""

    def build(source, mode="fix", mesh=OLD, name="libshape.so.4", links=((), ())):
        own, link = Builder(child.folder / "render"), f"-Wl,-soname,{name}"
        shape = own(name, source, link, *links[0])
        path = ("-Wl,--enable-new-dtags,-rpath,$ORIGIN",) if request.param == "itself" else ()
        code = "int trace(void); int who(void) { return 1; } int go(void) { return trace(); }"
        more = own("libmore.so", "int more;", "-Wl,-soname,libmore.so")
        flags = (shape, "-Wl,--no-as-needed", more, *path, "-Wl,-z,now,-soname,librender.so")
        flags = (own("librender.so", code, *flags), "-Wl,--disable-new-dtags,-rpath,$ORIGIN")
        code = "int trace(void); int go(void); int again(void) { return trace() + go(); }"
        own("again.so", code, shape, *flags, "-Wl,-z,now")
        own("ext.abi3.so", MODULE, f"-I{sysconfig.get_path('include')}", *flags, "-Wl,-z,now")
        old = str(Builder(child.folder / "mesh")(name, mesh, link, *links[1]))
        code = f"import ctypes, cudaguard; cudaguard.install({mode!r})\n{{}}{BY[request.param]}\n"
        assert "CG" not in run(child, code.format("")).stderr
        return old, run(child, code.format(f"mesh = ctypes.CDLL({old!r})\n") + LATER)

    return build


LATER = """
files = [open(__file__) for _ in range(20)]  # where the descriptors of copies were
print(ctypes.CDLL("./render/again.so").again(), ctypes.CDLL("libshape.so.4").old(), mesh.old())
print(*cudaguard.status().changes)
"""


@pytest.mark.parametrize("source", [OTHER + OLD, OTHER])
def test_library_of_which_nothing_is_known(shapes, source):
    """As bpy's libembree4 after pymeshlab's, or daal4py's libtbb after paddle's."""
    old, done = shapes(source, "warn")
    assert "undefined symbol: trace" in done.stderr
    assert "needs `trace`, but gets mesh's libshape.so.4 without it" in done.stderr
    assert old in done.stderr
    order = "import render before mesh; or " if source != OTHER else ""
    assert f"fix: {order}install both for one libshape.so.4" in done.stderr


@pytest.mark.parametrize("is_versioned", [False, True])
def test_each_package_gets_its_own(child, shapes, is_versioned):
    """As highspy's libhighs and that of ortools, which no order of imports lets load."""
    scripts = [child.write(f"{n}.map", f"{n}_1 {{ global: *; }};\n") for n in ("render", "mesh")]
    links = [[f"-Wl,--version-script={script}"] if is_versioned else [] for script in scripts]
    refusal = "version `render_1' not found" if is_versioned else "undefined symbol: trace"
    assert refusal in shapes(OTHER, "observe", links=links)[1].stderr
    for mode in ("fix", "strict"):
        old, done = shapes(OTHER, mode, links=links)
        *answers, changes = done.stdout.splitlines()[-3:]
        assert (answers, done.returncode, done.stderr) == (["1", "2 3 3"], 0, "")
        said = f"gets its own libshape.so.4, not that of {old.rpartition('/')[0]}"
        assert changes.count(said) == 1 + is_versioned  # else it is in what needs it


ASKS = "int dladdr(const void *, void *); void *asks = (void *)dladdr;"
UNIQUE = 'int one = 1; __asm__(".type one, %gnu_unique_object");'
SHARED = [(ASKS, "libshape.so.4"), (UNIQUE, "libshape.so.4"), ("", "libgomp.so.1")]


@pytest.mark.parametrize(("more", "name"), SHARED)
def test_library_that_must_not_be_there_twice(shapes, more, name):
    """Or of which a copy would not do: the refusal is told as ever."""
    _, done = shapes(OTHER + more, mesh=OLD + more, name=name)
    assert f"needs `trace`, but gets mesh's {name} without it" in done.stderr


def test_library_that_has_all_serves_both(shapes):
    _, done = shapes(OTHER, mesh=f"int trace(void){{return 9;}} {OLD}")
    assert (done.stdout[:2], "its own" in done.stdout, done.stderr) == ("9\n", False, "")
