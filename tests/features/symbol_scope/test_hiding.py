"""Names that are global already are hidden again: from whom, by which rules, and when not.

The package `taker` loads `libtaker.so` with RTLD_GLOBAL, and with it what its wheel bundles in
`taker.libs`. The extension `consumer` defines the same four names; a digit each says whose
definition it has been given: 1 the taker's, 2 its own.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import sysconfig

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux"
    or platform.machine() not in ("x86_64", "aarch64")
    or not platform.libc_ver()[0].startswith("glibc"),
    reason="hiding is supported on x86-64 and AArch64 with glibc only",
)

TAKER = """
int which(void) { return 1; }
int shown(void) { return 1; }
int xcb_connect(void) { return 1; }
int bundled(void);
int taker_which(void) { return which(); }
int taker_bundled(void) { return bundled(); }
"""
BUNDLED = "int bundled(void) { return 1; }\n"
NO_CALLS = "-nostartfiles"  # those of the C runtime can be bound lazily on AArch64
BUNDLED_FILE = "libbundled-0a1b2c3d.so.1"
CONSUMER = """
int which(void) { return 2; }
int shown(void) { return 2; }
int xcb_connect(void) { return 2; }
int bundled(void) { return 2; }
int ask(void) { return 1000 * which() + 100 * shown() + 10 * xcb_connect() + bundled(); }
"""
MODULE = """
#include <Python.h>
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
static PyObject *call(PyObject *self, PyObject *args) { return PyLong_FromLong(ask()); }
static PyMethodDef methods[] = {{"ask", call, METH_NOARGS, 0}, {0}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "consumer", 0, -1, methods};
PyMODINIT_FUNC JOIN(PyInit_, NAME)(void) { return PyModule_Create(&definition); }
"""
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
ALL_TAKEN, ALL_OWN = "1111", "2222"

# `open_by_c` is dlopen() itself: no wrapper around a Python function sees what it is asked.
PACKAGE = """
import ctypes
import os
path = os.path.join(os.path.dirname(__file__), {library!r})
def open_by_c(path, flags):
    dlopen = ctypes.pythonapi.dlopen
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    assert dlopen(os.fsencode(path), flags), path
{load}
library = ctypes.CDLL(path)
"""
BY_PYTHON = "ctypes.CDLL(path, ctypes.RTLD_GLOBAL)"
BY_C = "open_by_c(path, os.RTLD_NOW | os.RTLD_GLOBAL)"
LAZILY = "open_by_c(path, os.RTLD_LAZY | os.RTLD_GLOBAL)"
LOCALLY = "ctypes.CDLL(path)"

ASK = "import consumer; print(consumer.ask())"
# All but what the package is asked for, and one name to see that it is left alone.
HIDE = {"names": "*", "keep": ["taker_*", "shown"]}
HIDDEN = "2122"
TAKEN_BACK = (
    "libtaker.so: 3 symbols of it and 1 of its dependencies hidden from the global symbol scope"
)
SAID = """
import cudaguard
status = cudaguard.status()
for found in status.findings:
    print("finding", found.id, *found.evidence)
for entry in status.changes:
    if entry.endswith("(stays)"):
        print("touched", entry)
"""
# Protections of the pages of a library.
PAGES = """
def pages(name):
    found = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            area, flags, rest = line.split(maxsplit=2)
            if name in rest:
                start, stop = (int(number, 16) for number in area.split("-"))
                found.update(dict.fromkeys(range(start, stop, 4096), flags))
    return found
"""
BEFORE, SAME = "before = pages('taker')", "assert before == pages('taker') != {}"
# Code of the guard, by its module: what another raises is not the guard's to contain.
AS_OURS = """
def as_ours(function):
    return type(function)(function.__code__, {**globals(), "__name__": "cudaguard.sabotage"})
"""
# What a hardened kernel, or one in trouble, refuses: SHIM has words of which each is one refusal.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int says(const char *word) { char *s = getenv("SHIM"); return s && strstr(s, word); }
static int memory = -1, writes;
static int watched(const char *name, const char *path, int flags, int mode) {
    int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, name);
    int is_write = !strcmp(path, "/proc/self/mem") && (flags & 3);
    if (is_write && says("no-writing")) { errno = EPERM; return -1; }
    int file = next(path, flags, mode);
    if (is_write) memory = file;
    return file;
}
#define OPEN(name) int name(const char *path, int flags, ...) { va_list rest; \
    va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
    return watched(#name, path, flags, mode); }
OPEN(open)
OPEN(open64)
ssize_t pwrite64(int file, const void *data, size_t length, off_t place) {
    ssize_t (*next)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    int is_late = file == memory && writes++;
    if (is_late && (says("half") || (says("once") && writes == 2))) { errno = EIO; return -1; }
    return next(file, data, length, place);
}
ssize_t pwrite(int file, const void *data, size_t length, off_t place) {
    return pwrite64(file, data, length, place);
}
"""


def install(
    what: dict, *more_actions: dict, mode: str = "fix", library: str = "libtaker*.so*", **fields
) -> str:
    """Code that installs the guard with a rule about the package."""
    actions = ({"hide_symbols": library, **what}, *more_actions)
    more = "".join(f", {name}={value!r}" for name, value in fields.items())
    rule = f"cudaguard.Rule('LOCAL1', ('taker',), 'It is taken.', actions={actions!r}{more})"
    return f"import cudaguard; cudaguard.install({mode!r}, rules=[{rule}])"


class Scene:
    """The package and its consumer in the children's folder."""

    def __init__(self, pair, compiler) -> None:
        self.pair = pair
        self.compiler = compiler
        link = f"-Wl,-soname,{BUNDLED_FILE},-z,separate-code"  # as is usual on x86-64
        self.bundled = compiler.library(BUNDLED_FILE, BUNDLED, link, NO_CALLS)
        self.put(self.bundled, "taker.libs")
        self.package()
        self.consumer()

    def put(self, built, folder: str = ".") -> None:
        """Copy a compiled library into a folder."""
        target = self.pair.child.folder / folder
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(built, target)

    def package(
        self,
        *flags: str,
        load: str = BY_PYTHON,
        file: str = "libtaker.so",
        at: str = "taker",
        source: str = TAKER,
    ):
        """Write the package; its library lies in the folder `at`. Returns the built library."""
        runpath = f"-Wl,-rpath,$ORIGIN/{os.path.relpath('taker.libs', at)}"
        built = self.compiler.library(file, source, str(self.bundled), runpath, *flags)
        self.put(built, at)
        path = os.path.join(os.path.relpath(at, "taker"), file)
        self.pair.child.write("taker/__init__.py", PACKAGE.format(library=path, load=load))
        return built

    def consumer(self, *flags: str, name: str = "consumer", folder: str = ".") -> None:
        """Compile the consumer as an extension module."""
        include = f"-I{sysconfig.get_path('include')}"
        built = self.compiler.library(
            name + SUFFIX, CONSUMER + MODULE, include, f"-DNAME={name}", *flags
        )
        self.put(built, folder)

    def library(self, file: str, source: str, *flags: str, folder: str = ".") -> None:
        """Compile a further library."""
        self.put(self.compiler.library(file, source, *flags), folder)

    def run(self, *code: str, refused: str = "", **options):
        """Run pieces of code in a fresh interpreter, to which `SHIM` refuses something."""
        if refused:
            shim = self.compiler.library("shim.so", SHIM, "-ldl")
            options["env"] = {"LD_PRELOAD": str(shim), "SHIM": refused}
        return self.pair.bare(*code, **options)

    def lines(self, *code: str, **options) -> list[str]:
        """Run pieces of code that nothing is said of; returns what they print."""
        ran = self.run(*code, **options)
        assert ran.err == ""
        return ran.lines


@pytest.fixture
def scene(pair, compiler) -> Scene:
    return Scene(pair, compiler)


# --- the cure ------------------------------------------------------------------------------------


def test_without_the_guard_or_the_rule_everything_is_taken(scene):
    assert scene.lines("import taker", ASK) == [ALL_TAKEN]
    rule = "import cudaguard; cudaguard.install(rules=[cudaguard.Rule('A', ('taker',), 'a')])"
    # The guard by itself sees that somebody has taken `xcb_connect`, and only says so.
    ran = scene.run("import taker", rule, ASK, SAID)
    assert ran.lines[0] == ALL_TAKEN
    assert ran.lines[1].startswith("finding CG812")


def test_consumer_that_comes_after_the_guard_has_its_own(scene):
    lines = scene.lines("import taker", install(HIDE), ASK, SAID)
    assert lines == [HIDDEN, f"touched {TAKEN_BACK} by LOCAL1 (stays)"]


@pytest.mark.parametrize(
    ("what", "asked"),
    [
        ({"names": "which"}, "2111"),
        ({"names": ["which", "shown"]}, "2211"),
        ({"names": "wh*"}, "2111"),
        ({"names": "*ich"}, "2111"),
        ({"names": "whi?"}, "1111"),
        ({"names": "hich"}, "1111"),
        ({"names": "w.*"}, "1111"),
        ({"names": "xcb"}, "1121"),
        ({"names": ["xcb", "which"]}, "2121"),
        ({"names": "xcb", "keep": "xcb_connect"}, "1111"),
        ({"names": "*", "keep": "taker_*"}, "2222"),
        ({"names": "*", "keep": ["taker_*", "xcb"]}, "2212"),
    ],
    ids=str,
)
def test_names_that_are_hidden_and_names_that_are_not(scene, what, asked):
    assert scene.lines("import taker", install(what), ASK)[0] == asked


@pytest.mark.parametrize(
    "flags",
    [
        ("-Wl,--hash-style=sysv",),
        ("-Wl,--hash-style=gnu",),
        ("-Wl,--hash-style=both",),
        ("-Wl,-z,now",),
        ("-Wl,-z,norelro",),
        ("-Wl,-z,noseparate-code",),
        ("-fno-plt",),
    ],
    ids=" ".join,
)
def test_every_kind_of_library(scene, flags):
    library = scene.package(*flags)
    assert (b".gnu.hash" in library.read_bytes()) is (flags != ("-Wl,--hash-style=sysv",))
    assert scene.lines("import taker", install(HIDE), ASK)[0] == HIDDEN


def test_package_goes_on_using_its_own(scene):
    use = "print(taker.library.taker_which(), taker.library.taker_bundled(), fetched())"
    fetch = "import taker; fetched = taker.library.which"
    assert scene.lines(fetch, install(HIDE), use, ASK)[:2] == ["1 1 1", HIDDEN]


def test_rule_that_only_hides_acts_after_the_import(scene):
    """The guard is there in time, and C code makes the library global."""
    for load in (BY_C, BY_PYTHON):
        scene.package(load=load)
        assert scene.lines("import taker", ASK) == [ALL_TAKEN]
        lines = scene.lines(install(HIDE), "import taker", ASK, SAID)
        assert lines[0] == HIDDEN
        assert [line.split()[0] for line in lines[1:]] == ["touched"]


def test_whoever_is_bound_during_the_import_is_named(scene):
    scene.package(load=f"{BY_C}\nimport consumer")
    ran = scene.run(install(HIDE), "import taker", ASK, SAID)
    assert ran.lines[0] == ALL_TAKEN
    assert ran.lines[1].endswith("still bound to them: consumer (3 references)")


def test_rule_may_keep_it_local_as_well(scene):
    actions = (HIDE, {"load_local": "libtaker.so*"})
    early = scene.lines(install(*actions), "import taker", ASK, SAID)
    assert early[0] == ALL_OWN
    assert early[1:] == ["touched libtaker.so: kept in local symbol scope by LOCAL1 (stays)"]
    assert scene.lines("import taker", install(*actions), ASK)[0] == HIDDEN


def test_bundled_library_is_found_by_the_name_of_the_distribution(scene):
    """Folders are called after modules, what wheels bundle after distributions."""
    child = scene.pair.child
    (child.folder / "taker.libs").rename(child.folder / "Take_It.libs")
    runpath = "-Wl,-rpath,$ORIGIN/../Take_It.libs"
    scene.put(scene.compiler.library("libtaker.so", TAKER, str(scene.bundled), runpath), "taker")
    child.write(
        "take_it-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: Take.It\nVersion: 1.0\n"
    )
    assert scene.lines("import taker", install(HIDE), ASK)[0] == "2121"
    assert scene.lines("import taker", install(HIDE, dist=("take-it<2",)), ASK)[0] == HIDDEN


def test_bundled_library_that_others_rely_on_is_left_alone(scene):
    """Half of an OpenMP runtime would be worse than none."""
    openmp = scene.compiler.library(
        "libgomp-1a2b.so.1", "int which(void) { return 1; }", "-Wl,-soname,libgomp-1a2b.so.1"
    )
    scene.put(openmp, "taker.libs")
    source = TAKER.replace("int which(void) { return 1; }", "int which(void);")
    scene.package("-Wl,--no-as-needed", str(openmp), source=source)
    assert scene.lines("import taker", install(HIDE), ASK)[0] == "1122"


# --- who was bound before ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [(), ("-Wl,-z,now",), ("-Wl,-z,lazy",), ("-Wl,-z,norelro",), ("-fno-plt",)],
    ids=" ".join,
)
def test_consumer_that_was_bound_before_is_named_and_stays_bound(scene, flags):
    scene.consumer(*flags)
    ran = scene.run("import taker, consumer", install(HIDE), ASK, SAID)
    assert ran.lines[0] == ALL_TAKEN
    finding, touched = ran.lines[1:]
    assert finding == (f"finding CG802 {TAKEN_BACK}; still bound to them: consumer (3 references)")
    assert touched.endswith("by LOCAL1 (stays)")
    assert "[CG802] taker was imported before cudaguard could repair it (rule LOCAL1)" in ran.err
    assert "libraries loaded from now on do not use the hidden symbols" in ran.err
    assert ran.err.count("Warning") == 1


def test_those_who_are_bound_are_called_by_module_package_or_file(scene):
    for name in ("inner", "second"):
        scene.consumer(name=name, folder="outer")
    scene.consumer(name="single")
    scene.consumer("-Dask=ask_", name="spared")
    scene.pair.child.write("outer/__init__.py", "from outer import inner, second")
    scene.library("libplain.so", CONSUMER, folder="lib")
    load = "import taker, outer, single, ctypes; ctypes.CDLL('./lib/libplain.so')"
    ran = scene.run("import spared", load, install(HIDE), SAID)
    assert ran.lines[0].endswith(
        "still bound to them: outer (6 references), single (3 references), libplain.so "
        "(3 references)"
    )


def test_consumer_that_binds_at_its_first_call_is_cured_and_not_named(scene):
    scene.library("liblazy.so", CONSUMER, "-Wl,-z,lazy")
    load = "import taker, os; taker.open_by_c('./liblazy.so', os.RTLD_LAZY)"
    ask = "import ctypes; print(ctypes.CDLL('./liblazy.so', 4).ask())"  # RTLD_NOLOAD
    assert scene.lines(load, ask) == [ALL_TAKEN]
    lines = scene.lines(load, install(HIDE), ask, SAID)
    assert lines[0] == HIDDEN
    assert [line.split()[0] for line in lines[1:]] == ["touched"]


# --- modes and grades ----------------------------------------------------------------------------


def test_mode_that_repairs_nothing(scene):
    ran = scene.run("import taker", install({"names": "which"}, mode="warn"), ASK, SAID)
    assert ran.lines[0] == ALL_TAKEN
    assert "SymbolScopeWarning: [CG802] taker" in ran.err
    assert not any(line.startswith("touched") for line in ran.lines)


LATER = "cudaguard.add_rule(cudaguard.Rule('LOCAL2', ('later',), 'It comes later.'))"
NEXT = """
try:
    import later
except ImportError as error:
    print(type(error).__name__, error)
"""
LEFT = {
    "package": "ImportOrderError taker was imported before cudaguard could repair it "
    "(rule LOCAL1).",
    "guard": "ImportOrderError taker put its symbols into the global scope, and some libraries use "
    "them.",
}


@pytest.mark.parametrize("load", [BY_C, f"{BY_C}\nimport consumer"], ids=["cured", "bound"])
@pytest.mark.parametrize("first", ["package", "guard"])
def test_strict_raises_only_if_a_fault_is_left(scene, first, load):
    """At the next watched import: the one at fault has been made, or is being made by a package."""
    scene.pair.modules("later.py")
    scene.package(load=load)
    code = ["import taker", f"{install(HIDE, mode='strict')}; {LATER}"]
    ran = scene.run(*(code if first == "package" else reversed(code)), NEXT, NEXT, ASK)
    is_left = "consumer" in load
    told = [line for line in ran.lines if not line.startswith("  ")]  # remedy and command
    assert told == ([LEFT[first], ALL_TAKEN] if is_left else [HIDDEN])
    finding = "CG802" if first == "package" else "LOCAL1"
    assert ran.err.count(f"SymbolScopeWarning: [{finding}]") == is_left


# --- refusals ------------------------------------------------------------------------------------


def refused(scene, *code: str, load: str = "import taker", **options) -> str:
    """Run code behind the package; nothing may have changed. Returns the reason."""
    ran = scene.run(load, PAGES, BEFORE, *code, SAME, ASK, SAID, **options)
    answer, finding = ran.lines
    assert answer == ALL_TAKEN
    assert finding.startswith("finding CG802 ")
    assert "[CG802] taker was imported before cudaguard could repair it (rule LOCAL1)" in ran.err
    return finding.rpartition(": not hidden, as ")[2]


@pytest.mark.parametrize("place", ["elsewhere", "taker_tools", "."])
def test_library_outside_the_folders_of_the_package_is_let_be(scene, place):
    scene.package(at=place)
    folder = os.path.realpath(scene.pair.child.folder / place)
    reason = f"{folder}/libtaker.so lies outside the folders of taker"
    assert refused(scene, install(HIDE)) == reason


@pytest.mark.parametrize("file", ["libgomp-x.so", "libmpi.so", "libcudart-1a2b.so.12"])
def test_library_that_is_global_on_purpose_is_let_be(scene, file):
    """A rule that names it is not even taken; this pattern just happens to match."""
    scene.package(file=file)
    reason = refused(scene, install(HIDE, library=f"{file[:5]}*"))
    assert reason.endswith(f"taker/{file} is a library that others rely on to be global")


@pytest.mark.parametrize("name", ["soname", "file", "bundled"])
def test_library_that_an_object_outside_the_package_needs_is_let_be(scene, name):
    taker = scene.package(*(["-Wl,-soname,libtaker.so.1"] if name == "soname" else []))
    target = scene.bundled if name == "bundled" else taker
    runpath = "-Wl,-rpath,$ORIGIN/taker"  # where there is no soname
    link = ["-Wl,--no-as-needed", f"-L{target.parent}", f"-l:{target.name}", runpath]
    scene.library("libneeds.so", "int which(void);", *link)
    reason = refused(
        scene, install(HIDE), load="import taker, ctypes; ctypes.CDLL('./libneeds.so')"
    )
    folder = os.path.realpath(scene.pair.child.folder)
    at = "taker.libs" if name == "bundled" else "taker"
    assert reason == f"{folder}/libneeds.so needs {folder}/{at}/{target.name}"


def test_library_that_is_bound_lazily_is_let_be(scene):
    scene.package("-Wl,-z,lazy", load=LAZILY)
    reason = refused(scene, install(HIDE))
    assert "taker/libtaker.so was loaded with RTLD_LAZY: its first call of a hidden" in reason


@pytest.mark.parametrize("flags", [LAZILY, BY_C], ids=["asked", "not-asked"])
@pytest.mark.parametrize("link", ["-Wl,-z,now", "-fno-plt"])
def test_library_that_cannot_be_bound_lazily_is_hidden(scene, link, flags):
    scene.package(link, NO_CALLS, load=flags)
    assert scene.lines("import taker", install(HIDE), ASK)[0] == HIDDEN


@pytest.mark.parametrize(
    "pretend",
    [
        "import os; os.uname = lambda: type('uname', (), {'machine': 'riscv64'})",
        "import sys; sys.maxsize = 2**31 - 1  # a Python of 32 bits on a kernel of 64",
        ("from cudaguard.features.symbol_scope import hiding\nhiding.uses_glibc = lambda: False"),
    ],
    ids=["machine", "width", "libc"],
)
def test_machine_that_is_not_supported(scene, pretend):
    reason = "it is supported on x86-64 and AArch64 with glibc only"
    assert refused(scene, pretend, install(HIDE)) == reason


# --- nothing to do -------------------------------------------------------------------------------

STATE = """
import cudaguard
from cudaguard.features.symbol_scope.hiding import hide_symbols
rule = next(rule for rule in cudaguard.active_rules() if rule.id.startswith("LOCAL"))
print(hide_symbols(rule).state)
"""


@pytest.mark.parametrize("load", [LOCALLY, LAZILY.replace("os.RTLD_GLOBAL", "0")])
def test_library_that_is_local_is_left_alone(scene, load):
    scene.package("-Wl,-z,lazy", load=load)
    look = ("before = pages('taker')", install(HIDE), "assert before == pages('taker') != {}")
    for code in (["import taker", PAGES, *look], [install(HIDE), "import taker"]):
        assert scene.lines(*code, STATE, ASK, SAID) == ["local", ALL_OWN]


def test_name_that_another_library_gives_is_not_taken_for_this_one_s(scene):
    """The package's library is local, and a library of the same contents is global."""
    scene.package(load=LOCALLY)
    scene.put(scene.compiler.library("libother.so", TAKER + BUNDLED))
    other = "import ctypes; ctypes.CDLL('./libother.so', ctypes.RTLD_GLOBAL)"
    assert scene.run(other, "import taker", install(HIDE), STATE, ASK).lines == [
        "local",
        ALL_TAKEN,
    ]


# --- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["-Wl,-z,separate-code", "-Wl,-z,noseparate-code"])
@pytest.mark.parametrize("names", [0, 900])
def test_pages_stay_protected(scene, names, flag):
    """The table is one page long, or several; it is beside the code where old linkers put it."""
    many = "".join(f"int taker_{i}(void) {{ return {i}; }}\n" for i in range(names))
    scene.package(flag, source=TAKER + many)
    code = ("import taker", PAGES, BEFORE, install(HIDE), SAME, ASK, SAID)
    assert scene.lines(*code) == [HIDDEN, f"touched {TAKEN_BACK} by LOCAL1 (stays)"]


FAILURES = {
    "no-list": (
        f"""{AS_OURS}
from cudaguard.elf import resident
@as_ours
def first_entry(): raise OSError(38, "the dynamic loader does not give its list of libraries")
resident.first_entry = first_entry
""",
        "",
        "the dynamic loader does not give its list of libraries",
    ),
    "no-memory-file": (
        f"""{AS_OURS}
from cudaguard.files import os
_open = os.open
@as_ours
def refuse(path, *args, **kwargs):
    if path == "/proc/self/mem": raise PermissionError(13, "Permission denied", path)
    return _open(path, *args, **kwargs)
os.open = refuse
""",
        "",
        "Permission denied",
    ),
    "nothing-written": (
        (
            "from cudaguard.features.symbol_scope import hiding\n"
            "hiding._Member.write = lambda member, is_hidden: None"
        ),
        "",
        "names of {folder}/taker/libtaker.so are still found",
    ),
    "no-way": ("", "no-writing", "Operation not permitted"),
    "half-way": ("", "once", "Input/output error"),
}


@pytest.mark.parametrize("how", FAILURES)
def test_failure_is_reported_and_changes_nothing(scene, how):
    pretend, shim, reason = FAILURES[how]
    reason = reason.format(folder=os.path.realpath(scene.pair.child.folder))
    assert refused(scene, pretend, install(HIDE), refused=shim) == reason
    # The import of a rule that acts after it goes on as well.
    scene.package(load=BY_C)
    code = (pretend, install(HIDE), "import taker; print(taker.library.taker_which())", ASK)
    ran = scene.run(*code, refused=shim)
    assert ran.lines == ["1", ALL_TAKEN]
    assert f"not hidden, as {reason}" in ran.err


def test_half_of_it_that_cannot_be_undone_is_told(scene):
    ran = scene.run("import taker", install(HIDE), ASK, SAID, refused="half")
    half = "2 symbols hidden from the global symbol scope"
    assert ran.lines[0].count("2") == 2
    assert f"taker/libtaker.so: {half}, and not the others, as Input/output err" in ran.lines[1]
    assert ran.lines[2] == f"touched libtaker.so: {half} by LOCAL1 (stays)"
    assert ran.err.count("Warning") == 1


# --- other threads -------------------------------------------------------------------------------

THREADS = """
import cudaguard, ctypes, os, sys, threading, taker
from cudaguard.features.symbol_scope.hiding import hide_symbols
sys.setswitchinterval(1e-5)
rules = [cudaguard.Rule(f"L{n}", ("taker",), "x", actions=({"hide_symbols": "libtaker.so",
         "names": [f"taker_{n}*"]},)) for n in (1, 2, 3)]
def hide(rule):
    barrier.wait()
    hide_symbols(rule)
"""
TOGETHER = """
for _ in range(10):
    if not os.fork():
        barrier = threading.Barrier(3)
        threads = [threading.Thread(target=hide, args=(rule,)) for rule in rules]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(sum(hasattr(taker.library, f"taker_{n}") for n in range(1000, 4000)) > 0)
    print(os.wait()[1])
"""
FORKED = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads, from 3.12 on
barrier = threading.Barrier(2)
thread = threading.Thread(target=hide, args=(rules[0],))
thread.start()
barrier.wait()
children = [os.fork() for _ in range(20) if thread.is_alive()]
if 0 in children:
    found = sum(hasattr(taker.library, f"taker_{n}") for n in range(1000, 2000))
    barrier = threading.Barrier(1)
    hide(rules[1])
    os._exit(found not in (0, 1000) or hasattr(taker.library, "taker_2000"))
thread.join()
print(*{os.waitpid(child, 0)[1] for child in children})
"""
# Loads the library globally and unloads it, again and again; what lies in its place is not to be
# written to.
SPIN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
volatile int stop, rounds;
int spin(const char *path) {
    for (long size = 1 << 18, bad = 0, pause = 0; ; rounds++) {
        if (stop) return bad;
        void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        struct link_map *map;
        if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map)) return -1;
        void *base = (void *)map->l_addr;
        usleep(pause = (pause + 1700) % 20000);
        dlclose(library);
        char *place = mmap(base, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (place != base) { if (place != MAP_FAILED) munmap(place, size); continue; }
        memset(place, 0xAA, size);
        usleep(15000);
        for (long at = 0; at < size; at++) if (place[at] != (char)0xAA) { bad++; break; }
        munmap(place, size);
    }
}
"""
UNLOADED = """
import cudaguard, ctypes, threading, time
from cudaguard.features.symbol_scope.hiding import hide_symbols
rule = cudaguard.Rule("L1", ("taker",), "x", actions=({"hide_symbols": "libtaker.so",
                      "names": "taker_*"},))
spin, found, seen = ctypes.CDLL("./spin.so"), [], set()
thread = threading.Thread(target=lambda: found.append(spin.spin(b"./taker/libtaker.so")))
thread.start()
end = time.monotonic() + 2
while time.monotonic() < end:
    seen.add(hide_symbols(rule).state)
ctypes.c_int.in_dll(spin, "stop").value = 1
thread.join()
print(found, "done" in seen, ctypes.c_int.in_dll(spin, "rounds").value > 9)
"""


def test_names_that_threads_hide_at_once_are_all_hidden_and_in_children_all_or_none(scene):
    many = "".join(f"int taker_{i}(void) {{ return {i}; }}\n" for i in range(1000, 4000))
    scene.package(source=TAKER + many)
    assert scene.lines(THREADS, TOGETHER) == ["0"] * 10
    assert scene.lines(THREADS, FORKED) == ["0"]


def test_library_that_another_thread_unloads_is_held_meanwhile(scene):
    many = "".join(f"int taker_{i}(void) {{ return {i}; }}\n" for i in range(5000))
    scene.put(scene.compiler.library("libtaker.so", many), "taker")
    scene.library("spin.so", SPIN)
    assert scene.lines(UNLOADED) == ["[0] True True"]


# --- afterwards ----------------------------------------------------------------------------------


def test_uninstall_leaves_it_hidden_and_says_so(scene):
    lines = scene.lines("import taker", install(HIDE), "cudaguard.uninstall()", ASK, SAID)
    assert lines[0] == HIDDEN
    assert lines[1].startswith(f"touched {TAKEN_BACK} by")


# --- odd packages --------------------------------------------------------------------------------


def test_copy_that_stands_behind_a_hidden_one_is_hidden_as_well(scene):
    """Two libraries of the package give the same name: hiding the first uncovers the second."""
    source = BUNDLED + "int which(void) { return 3; }\n"
    bundled = scene.compiler.library(BUNDLED_FILE, source, f"-Wl,-soname,{BUNDLED_FILE}")
    scene.put(bundled, "taker.libs")
    assert scene.lines("import taker", install({"names": "which"}), ASK)[0] == "2111"


@pytest.mark.parametrize("place", ["taker", "."])
def test_lazily_bound_user_of_a_hidden_name_is_let_be(scene, place):
    """It has no `which` of its own and looks it up at its first call. In the package it names the
    library; outside ("."), it relies on the global scope."""
    taker = scene.package("-Wl,-soname,libtaker.so")
    source = "int which(void); int part(void) { return which(); }"
    link = [str(taker)] if place == "taker" else []
    scene.library("libpart.so", source, *link, "-Wl,-z,lazy", folder=place)
    load = f"""
        import ctypes, os, taker
        taker.open_by_c("./{place}/libpart.so", os.RTLD_LAZY)
        part = ctypes.CDLL("./{place}/libpart.so", 4)
        """
    ran = scene.run(load, install({"names": "which"}), "print(part.part())", SAID)  # dies with 127
    assert ran.lines[0] == "1"
    assert "RTLD_LAZY" in ran.lines[1]


def test_submodule_that_makes_it_global_later(scene):
    """Nothing is hidden, and nothing is said either: the rule takes care of it, says CG812."""
    scene.package(load="")
    init = scene.pair.child.folder / "taker" / "__init__.py"
    init.write_text(init.read_text().replace("library = ctypes.CDLL(path)\n", ""))
    scene.pair.child.write("taker/late.py", f"from taker import *\nfrom taker import path\n{BY_C}")
    assert scene.lines(install(HIDE), "import taker.late", ASK)[0] == HIDDEN


def test_import_that_fails_after_its_library_is_global(scene):
    scene.package(load=f"{BY_C}\nraise ImportError('no codec')")
    load = """
        try:
            import taker
        except ImportError as error:
            print(error)
        """
    assert scene.lines(install(HIDE), load, ASK)[:2] == ["no codec", HIDDEN]


def test_package_that_is_reached_by_a_link(scene):
    folder = scene.pair.child.folder
    (folder / "store").mkdir()
    for name in ("taker", "taker.libs"):
        (folder / name).rename(folder / "store" / name)
        (folder / name).symlink_to(folder / "store" / name)
    scene.run("import taker", ASK)
    assert scene.run("import taker", install(HIDE), ASK).lines[0] == HIDDEN


def test_library_that_was_mixed_up_already_is_nobodys_new_owner(scene):
    """Like a system zlib that comes after a bundled one: its own calls lead into the other."""
    source = "int which(void) { return 7; }\nint both(void) { return 10 * which() + 1; }\n"
    shared = scene.compiler.library("libshared.so", source, "-Wl,-soname,libshared.so")
    scene.put(shared, ".")
    user = "int both(void);\nint which(void);\nint ask(void) { return 100 * which() + both(); }\n"
    scene.library("libuser.so", user, str(shared), "-Wl,-rpath,$ORIGIN")
    ask = "print(ctypes.CDLL('./libuser.so').ask())"
    before = "import taker, ctypes; ctypes.CDLL('./libshared.so')"
    without = scene.lines(before, ask)
    ran = scene.run(before, install(HIDE), ask, SAID)
    assert ran.lines[0] == without[0]  # one owner for all, though the wrong one
    assert "libtaker.so is left as it is" in ran.err
    assert "libshared.so was loaded after it and calls into it" in ran.err
