"""The kernel wakes the guard in time for all that it has rules and detectors for, and else sleeps.

What a program hears must not depend on it: the same programs are run with the guard awake from the
start, and with a kernel that sleeps through everything, where they hear nothing.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import sysconfig
import textwrap
from typing import NamedTuple

import pytest

from cudaguard.features import _index
from cudaguard.kernel import watched

from ..features.extensions.conftest import MODULE
from ..features.extensions.test_thread_state import BEGIN, FLUSH
from ..hooks.conftest import compiler as compiler
from ..hooks.conftest import native as native
from ..hooks.conftest import pair as pair

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux' loader is looked at")

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
TAKER = "int which_copy(void) { return 1; }\n"
FIXED = """
static __thread int room __attribute__((tls_model("initial-exec")));
int answer(void) { return room; }
"""
# Has that function as well, and one of Python's: it is not bound to its own ones.
VICTIM = """
int which_copy(void) { return 2; }
int Py_IsInitialized(void) { return 3; }
int use(void) { return which_copy() + Py_IsInitialized(); }
"""
OWN_RUNTIME = """
__attribute__((visibility("default"))) int unique __asm__("_ZNSt7collateIcE2idE");
__asm__(".type _ZNSt7collateIcE2idE, @gnu_unique_object");
"""
PART = OWN_RUNTIME.replace("7collateIcE2id", "13random_device7_M_fini")
USING = "int answer(void);\nint used(void) { return answer(); }\n"
ANSWER = "int answer(void) { return 42; }\n"
OPENS = 'dlopen("./libcudart.so.12", RTLD_NOW);'
PAST_US = "import _ctypes; _ctypes.dlopen({!r}, {})\n"
TRY = "try: {}\nexcept (ImportError, OSError) as error: print(type(error).__name__)\n"
GLOBAL = "os.RTLD_NOW | os.RTLD_GLOBAL"
USE = "ctypes.CDLL('./libvictim.so')"
START = "import os, sys, ctypes, cudaguard\n"
INSTALL = "cudaguard.install()\n"
INSTALL_FIRST = "import cudaguard\ncudaguard.install()\n"  # before ctypes
# A kernel that nothing wakes but the look at what was found.
SLEEP = """
from cudaguard import kernel
kernel.may_wake = lambda: False
kernel.kernel.of_loads().look_after = lambda *_: None
"""
SHOW = """
import json
status = cudaguard.status()
found = [(one.id, one.what, one.evidence) for one in status.findings]
print(json.dumps({"by": status.woken_by, "found": found}))
"""


class Case(NamedTuple):
    """A program that has to wake the guard: its code, how it begins, and what is found then."""

    by: str
    code: str
    found: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()  # events and moments


CASES = {
    "import": Case("import of cupy", "import cupy", (), ("before", "after", "late")),
    "needs torch's": Case(
        "extension using_c10, which needs libc10.so", TRY.format("import using_c10"), (),
        ("needing",),
    ),
    "own runtime": Case(
        "extension runtime, which has a C++ runtime of its own", "import runtime", (),
        ("runtime_exported",),
    ),
    "part of the shared runtime": Case(
        "extension part, which may have parts of libstdc++.so.6", "import part", (),
        ("closer_look",),
    ),
    "extension that is cut short": Case(
        "extension cut, which is cut short, or unlike others", TRY.format("import cut"),
        ("CG840",), ("truncated",),
    ),
    "extension that is refused": Case(
        "extension missing, which was refused", TRY.format("import missing"), (),
        ("refused", "load_failed", "lacking"),
    ),
    "extension that brings one of CUDA's": Case(
        "extension using_cudart, which needs libcudart.so.12", "import using_cudart", (),
        ("choosing",),
    ),
    "extension with thread-local variables at a fixed place": Case(
        "extension fixed, which takes static TLS", "import fixed", (), ("crowding",)
    ),
    "extension that opens one of CUDA's": Case(
        "libcudart.so.12, mapped by opening", "import plain, opening", (), ("mapped",)
    ),
    "library that is mapped past us behind an extension that nothing comes with": Case(
        "libcudart.so.12, mapped past Python's importer",
        "import plain\n" + PAST_US.format("./libcudart.so.12", "os.RTLD_NOW") + "import runtime",
        (), ("mapped",),
    ),
    "library of which there should be one": Case(
        "libomp.so, loaded by ctypes as ./libomp.so",
        "ctypes.CDLL('./libomp.so'); ctypes.CDLL('./libiomp5.so')", ("CG842",),
        ("loaded", "mapped"),
    ),
    "library that is made global": Case(
        "./libtaker.so, which ctypes makes global",
        f"ctypes.CDLL('./libtaker.so', {GLOBAL}); {USE}",
        ("CG812",), ("opening", "mapped", "mapping"),
    ),
    "extensions that are made global": Case(
        "sys.setdlopenflags(), which makes extensions global",
        f"sys.setdlopenflags({GLOBAL}); import taking; {USE}", ("CG812",), ("opening", "masking"),
    ),
    "library that is made global past us": Case(
        "libtaker.so, which is global, mapped past Python's importer",
        f"import plain\n{PAST_US.format('./libtaker.so', GLOBAL)}ctypes.CDLL('libm.so.6'); {USE}",
        ("CG812",), ("mapped",),
    ),
    "library that is cut short": Case(
        "./libcut.so, which is cut short, or unlike others",
        TRY.format("ctypes.CDLL('./libcut.so')"), ("CG840",), ("truncated",),
    ),
    "library that lacks another": Case(
        "./libusing.so, which was refused to ctypes", TRY.format("ctypes.CDLL('./libusing.so')"),
        (), ("lacking", "load_failed"),
    ),
    "extension that changes the arithmetic": Case(
        "arithmetic changed by what is mapped by flushing", "import flushing", (),
        ("thread_changed",),
    ),
    "library that changes the arithmetic": Case(
        "arithmetic changed by what is loaded by ctypes as ./libflush.so",
        "ctypes.CDLL('./libflush.so')", (), ("thread_changed",),
    ),
    "library that lies where nobody looks any more": Case(
        "liblate.so.1, which was refused to ctypes",
        "os.environ['LD_LIBRARY_PATH'] = os.path.abspath('other')\n"
        + TRY.format("ctypes.CDLL('liblate.so.1')"), ("CG820",), ("not_found",),
    ),
}  # fmt: skip
# What happens to those who are awake only: to detectors that have begun, to what was found.
AWAKE = {"begin", "before_load", "ctypes_comes", "around_import", "cuda_initialized",
         "first_import", "error_leaves", "ended", "error_passes", "goes_on", "forget"}  # fmt: skip
# Needed by extensions in C++, where the environment has it: with conda.
ENVIRONMENT = "first"


@pytest.fixture(scope="module")
def libraries(compiler, tmp_path_factory):
    """A folder with all that the programs load."""
    folder = tmp_path_factory.mktemp("libraries")

    def put(name, source, *flags):
        return compiler.put(folder / name, source, *flags)

    cudart = put("libcudart.so.12", ANSWER, "-Wl,-soname,libcudart.so.12")
    c10 = compiler.library("libc10.so", ANSWER, "-Wl,-soname,libc10.so")
    gone = compiler.library("libgone.so", ANSWER, "-Wl,-soname,libgone.so")
    put("libomp.so", "int omp;\n")
    put("libiomp5.so", "int omp;\n")
    put("other/liblate.so.1", "int late;\n")
    put("libflush.so", BEGIN)
    put("liblater.so", f"void flush(void) {{ {FLUSH}; }}")
    put("libtaker.so", TAKER)
    put("libvictim.so", VICTIM)
    put("libusing.so", USING, str(gone))
    for name, body, *flags in (
        ("runtime", OWN_RUNTIME),
        ("part", PART, "-Wl,--no-as-needed", "-l:libstdc++.so.6"),
        ("opening", "#include <dlfcn.h>"),
        ("using_c10", USING, str(c10)),
        ("using_cudart", USING, str(cudart), f"-Wl,-rpath,{folder}"),
        ("flushing", BEGIN),
        ("fixed", FIXED),
        ("taking", TAKER),
    ):
        source = MODULE.format(name=name, body=body, call=OPENS if name == "opening" else "")
        put(name + SUFFIX, source, *flags)
    shutil.copy(compiler.extension("missing", "MISSING_SYMBOL"), folder)
    shutil.copy(compiler.extension("plain"), folder)
    whole = compiler.extension("cut").read_bytes()
    (folder / f"cut{SUFFIX}").write_bytes(whole[:6000])
    (folder / "libcut.so").write_bytes(whole[:6000])
    (folder / "cupy.py").write_text("")
    (folder / "ran.py").write_text("names = []\n")
    return folder


@pytest.fixture
def run(libraries, child):
    """Runs a program in that folder; returns its lines but the last, and what was found."""

    def run(*code: str, may_die: bool = False, **env: str):
        env = {"PYTHONPATH": str(libraries), **env}
        done = child.python("".join(code), env=env, check=not may_die)
        if done.returncode == -signal.SIGBUS:
            return [], "", []
        *lines, last = done.stdout.splitlines()
        seen = json.loads(last)
        return lines, seen["by"], seen["found"]

    return run


def begin(libraries) -> str:
    return START + f"os.chdir({str(libraries)!r})\n"


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_guard_is_woken_in_time(run, libraries, case):
    start = begin(libraries)
    lines, by, found = run(start, INSTALL, case.code, SHOW)
    assert by == case.by
    assert tuple(one for one, *_ in found) == case.found
    # Awake from the start, the program hears the same.
    again, by, same = run(start, INSTALL, case.code, SHOW, CUDAGUARD_WAKE="1")
    assert (again, same) == (lines, found)
    assert by == "environment variable CUDAGUARD_WAKE"
    # And nothing, if the kernel sleeps through it.
    _, by, lost = run(start, INSTALL, SLEEP, case.code, SHOW, may_die=True)
    assert [one for one, *_ in lost if one != "CG812"] == []  # that is seen at any time
    assert by == ("" if "CG840" in case.found else "cudaguard.status")


QUIET = {
    "nothing": "",
    "extension": "import plain",
    "library": "ctypes.CDLL('libm.so.6')",
    "library that is not there": TRY.format("ctypes.CDLL('libabsent.so')"),
    "flags as they are": "sys.setdlopenflags(sys.getdlopenflags())",
    "module that is not there": TRY.format("import absent"),
    "extensions of Python": "import _bz2, _lzma, _ssl, _decimal",
    "arithmetic of the program's own": "ctypes.CDLL('./liblater.so').flush(); import plain",
    "a process that is forked": "child = os.fork() or os._exit(0); os.waitpid(child, 0)",
}


@pytest.mark.parametrize("code", QUIET.values(), ids=list(QUIET))
def test_kernel_sleeps_through_what_concerns_nobody(run, libraries, code):
    asleep = "\nprint([name for name in sys.modules if name.startswith('cudaguard.')])\n"
    ours = ["cudaguard.kernel.watched", "cudaguard.kernel", "cudaguard.kernel.loads"]
    for start in (begin(libraries) + INSTALL, INSTALL_FIRST + begin(libraries)):
        lines, by, found = run(start, code, asleep, SHOW)
        assert lines[-1] == str(ours)
        assert (by, found) == ("cudaguard.status", [])


@pytest.mark.parametrize("name", ["libgcc_s.so.1", "./libtaker.so"])
def test_detectors_look_after_a_global_load_only_if_one_knows_the_library(run, libraries, name):
    look = "\nprint('cudaguard.core.detection' in sys.modules)"
    load = f"ctypes.CDLL({name!r}, {GLOBAL})"
    lines, by, _ = run(begin(libraries), "cudaguard.install()\n", load, look, SHOW)
    assert (lines[-1], by) == (str("taker" in name), f"{name}, which ctypes makes global")


@pytest.mark.parametrize(
    ("code", "by"),
    [
        ("cudaguard.install(disable=['CG001'])\n", "install() with settings"),
        ("import cupy\ncudaguard.install()\n", "cupy, which was imported before"),
        ("cudaguard.install().mode\n", "a look at the mode"),
        ("with cudaguard.install(): pass\ncudaguard.install()\n", "a with statement"),
        ("with cudaguard.guard(): print(cudaguard.status().woken_by)\ncudaguard.install()\n",
         "cudaguard.guard"),
        ("cudaguard.install(); cudaguard.uninstall(); cudaguard.install()\n",
         "cudaguard.uninstall"),
    ],
)  # fmt: skip
def test_guard_is_woken_by_who_asks_for_more(run, libraries, code, by):
    assert run(begin(libraries), code, SHOW)[1] == by


def test_guard_that_no_file_is_left_for_is_woken_the_next_time(libraries, child):
    code = """
    import resource
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, most[1]))
    try: import cupy
    except OSError as error: print(error.errno)
    resource.setrlimit(resource.RLIMIT_NOFILE, most)
    import cupy
    """
    start = begin(libraries) + INSTALL
    done = child.python(start + textwrap.dedent(code) + SHOW, env={"PYTHONPATH": str(libraries)})
    assert (done.stderr, done.stdout.split(",")[0]) == ("", '24\n{"by": "import of cupy"')


# Each in a process of its own, as the guard is woken once.
EACH = """
for name in {!r}:
    if not os.fork():
        try: __import__(name)
        except ImportError: pass
        print(name, "-", cudaguard.status().woken_by, flush=True)
        os._exit(0)
    os.wait()
"""


def occasions() -> dict[str, str]:
    """What is imported for each rule, verb and detector of the index, and what wakes the guard."""
    modules = {one[9:] for _, heard in _index.DETECTORS for one in heard if ":" in one}
    modules.update(_index.INITIALIZERS)
    found = {}
    for _, _, _, watch, _, actions, conditions in _index.RULES:
        modules.update(watch if conditions.get("platform") != "win32" else ())
        for verb, value in actions:
            if {"needing", "choosing"} & _index.VERBS[verb].keys():
                library = value.replace(".so*", ".so.12").replace("*", "")
                name = library.replace(".", "_")
                found[name] = f"extension {name}, which needs {library}"
    for name in modules:
        packages = [name[:end] for end, sign in enumerate(f"{name}.") if sign == "."]
        found[name] = f"import of {next(one for one in packages if one in modules)}"
    assert modules == set(watched.WATCHED)
    return found


def test_each_rule_verb_and_detector_of_the_index_wakes_the_guard(run, libraries, compiler):
    found, other = occasions(), "lib" + 30 * "x"
    needed = compiler.library(other, ANSWER, f"-Wl,-soname,{other}")
    using = compiler.library("using", MODULE.format(name="using", body=USING, call=""), str(needed))
    for name, why in found.items():
        library = why.rpartition(" ")[2].encode().ljust(len(other), b"\0")
        if why.startswith("import"):
            folder = libraries / name.replace(".", "/")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").touch()
        else:
            (libraries / f"{name}{SUFFIX}").write_bytes(
                using.read_bytes().replace(other.encode(), library)
            )
    each = EACH.format(sorted(found))
    lines, *_ = run(begin(libraries), INSTALL, each, SHOW)
    assert lines == [f"{name} - {why}" for name, why in sorted(found.items())]
    lines, *_ = run(begin(libraries), INSTALL, SLEEP, each, SHOW)
    assert lines == [f"{name} - cudaguard.status" for name in sorted(found)]


@pytest.mark.parametrize("entries", ["${ORIGIN}/away", "$ORIGIN/away", "/nowhere:", "away"])
def test_kernel_finds_folders_of_a_run_path_as_the_loader_does(compiler, child, entries):
    here = child.folder / "here"
    place = here / "away" if "away" in entries else here
    near = compiler.put(place / "libnear.so", ANSWER, "-Wl,-soname,libnear.so")
    user = compiler.put(here / "user", USING, str(near), f"-Wl,-rpath,{entries}")
    code = f"""
        import ctypes, os
        from cudaguard.elf.reader import ElfFile
        from cudaguard.elf.search_path import Place, SearchPath
        from cudaguard.kernel.loads import run_path
        user = {str(user)!r}
        for folder in {str(here.parent)!r}, {str(here)!r}:
            os.chdir(folder)
            found = SearchPath().find("libnear.so", Place(user, ElfFile(user), None))
            print(any(os.path.exists(f"{{one}}/libnear.so") for one in run_path(user)), end=" ")
            try: print(bool(found), ctypes.CDLL(user).used())
            except OSError: print(bool(found), "refused")
    """
    elsewhere = "True True 42" if "ORIGIN" in entries else "False False refused"
    assert child.python(code).stdout.splitlines() == [elsewhere, "True True 42"]


def test_there_is_a_case_for_every_event_and_every_moment():
    events = {one for _, heard in _index.DETECTORS for one in heard if ":" not in one}
    moments = {moment for moments in _index.VERBS.values() for moment in moments}
    served = {one for case in CASES.values() for one in case.serves}
    assert events | moments == served | AWAKE | {ENVIRONMENT}


def test_extension_in_cxx_wakes_where_the_environment_or_a_package_has_a_runtime(
    run, libraries, compiler
):
    source = MODULE.format(name="cxx", body="", call="")
    compiler.put(libraries / f"cxx{SUFFIX}", source, "-Wl,--no-as-needed", "-lstdc++")
    conda, site = libraries / "conda", libraries / "site-packages"
    for folder in (None, conda / "lib", site / "bringing"):
        if folder is not None:
            folder.mkdir(parents=True)
            (folder / "libstdc++.so.6").write_text("")
        code = f"sys.prefix = {str(conda)!r}\nsys.path.append({str(site)!r})\nimport cxx\n"
        by = run(begin(libraries), INSTALL, code, SHOW)[1]
        expected = "extension cxx, which needs libstdc++.so.6, of which there may be two copies"
        assert by == ("cudaguard.status" if folder is None else expected)
        shutil.rmtree(folder or conda, ignore_errors=True)
