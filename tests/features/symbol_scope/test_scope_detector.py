"""The look at the global symbol scope: when it happens, and that nobody else notices it.

One small library stands for real ones: it exports a name by which libjpeg is told. (Some builds of
Python have zlib in the program itself.) What is said of such a library is tested in
`tests/incidents`.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="names are searched per library elsewhere"
)
TAKER = "void jpeg_CreateDecompress(void) {}\n"
TAKING = f"""
#include <Python.h>
{TAKER}
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "taking", 0, -1, 0}};
PyMODINIT_FUNC PyInit_taking(void) {{ return PyModule_Create(&definition); }}
"""
PLAIN = "int which(void) { return 2; }\n"

INSTALL = "cudaguard.install()"
FOUND = "print([finding.id for finding in cudaguard.status().findings])"
TAKE = "ctypes.CDLL('./libtaker.so', ctypes.RTLD_GLOBAL)"
GLOBAL_FLAGS = "import os, sys; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)"
TOLD = "SymbolScopeWarning: [CG812] "


@pytest.fixture
def scene(native, compiler):
    """The libraries and two extensions in the children's folder."""
    for name, source in (("libtaker.so", TAKER), ("libplain.so", PLAIN)):
        shutil.copy(compiler.library(name, source), native.child.folder)
    taking = f"taking{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = f"-I{sysconfig.get_path('include')}"
    shutil.copy(compiler.library(taking, TAKING, include), native.child.folder)
    native.extension("one")
    native.extension("two")
    native.modules("plain.py")
    return native


@pytest.mark.parametrize("mode", ["observe", "warn", "fix"])
def test_taker_is_found_in_every_mode(scene, mode):
    ran = scene.bare(f"import ctypes, cudaguard; cudaguard.install({mode!r})", TAKE, FOUND)
    assert ran.lines == ["['CG812']"]
    assert ran.err.count(TOLD) == (mode != "observe")


# --- ctypes -----------------------------------------------------------------------------------

IS_THERE = "print('ctypes' in sys.modules, '_ctypes' in sys.modules)"


def test_ctypes_is_not_imported_for_it(scene):
    ran = scene.bare(
        "import cudaguard, os, sys",
        INSTALL,
        "import one, two; sys.setdlopenflags(os.RTLD_NOW); cudaguard.status()",
        IS_THERE,
    )
    assert (ran.lines, ran.err) == (["False False"], "")


def test_it_is_where_the_program_asks_for_global_names(scene):
    ran = scene.bare(
        "import cudaguard, sys", INSTALL, GLOBAL_FLAGS, IS_THERE, "import taking", FOUND
    )
    assert ran.lines == ["False False", "['CG812']"]
    assert f"{TOLD}taking put taking." in ran.err


# --- threads and processes --------------------------------------------------------------------

BUSY = """
import _ctypes, ctypes, importlib.util, os, sys, threading, time
import cudaguard
cudaguard.install("observe")
sys.setswitchinterval(1e-5)
END = time.monotonic() + 3
counts = dict.fromkeys(("first", "second", "closed"), 0)

def load(name, mode):
    for path in sorted(os.listdir("copies")):
        if path.startswith(name) and time.monotonic() < END:
            ctypes.CDLL(f"./copies/{path}", mode)
            spec = importlib.util.spec_from_file_location("one", EXTENSION)
            importlib.util.module_from_spec(spec)
            counts[name] += 1

def open_and_close():
    while any(thread.is_alive() for thread in loaders):
        handle = _ctypes.dlopen("./libtaker.so", ctypes.RTLD_GLOBAL | os.RTLD_NOW)
        _ctypes.dlclose(handle)
        counts["closed"] += 1

loaders = [
    threading.Thread(target=load, args=("first", ctypes.RTLD_LOCAL)),
    threading.Thread(target=load, args=("second", ctypes.RTLD_GLOBAL)),
]
third = threading.Thread(target=open_and_close)
for thread in (*loaders, third): thread.start()
for thread in (*loaders, third): thread.join()
print(all(counts.values()), {finding.id for finding in cudaguard.status().findings} <= {"CG812"})
"""


def test_threads_that_load_while_others_open_and_close(scene):
    (scene.child.folder / "copies").mkdir()
    for name in ("first", "second"):
        for number in range(100):
            copy = scene.child.folder / "copies" / f"{name}{number}.so"
            shutil.copy(scene.child.folder / "libplain.so", copy)
    extension = str(scene.extension("one"))
    ran = scene.bare(f"EXTENSION = {extension!r}", BUSY, timeout=60)
    assert (ran.lines, ran.err) == (["True True"], "")


def test_forked_child_looks_by_itself(scene):
    ran = scene.bare(
        "import ctypes, cudaguard, os, sys",
        INSTALL,
        f"""
        child = os.fork()
        if not child:
            {TAKE}
            {FOUND}
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        FOUND,
    )
    assert (ran.lines, ran.err) == (["['CG812']", "[]"], "")


def test_uninstall_ends_it_and_install_begins_anew(scene):
    lines = scene.bare(
        "import ctypes, cudaguard",
        INSTALL,
        "cudaguard.uninstall()",
        TAKE,
        FOUND,
        INSTALL,
        "print([finding.what for finding in cudaguard.status().findings])",
    ).lines
    assert lines[0] == "[]"
    assert "was put into the global symbol scope before the guard was installed" in lines[1]


# --- what may fail ----------------------------------------------------------------------------

# Code of the guard, by its module: what another raises is not the guard's to contain.
AS_OURS = """
def as_ours(function):
    return type(function)(function.__code__, {"__name__": "cudaguard.sabotage"})
"""
BROKEN = """
import cudaguard.hooks.own_imports as own
def find(name, real=own._find_and_load):
    if name == "cudaguard.features.symbol_scope.detector":
        own._find_and_load = real
        from cudaguard.elf.symbols import GlobalNames
        def broken(*args): raise AttributeError('names')
        GlobalNames.{method} = as_ours(broken)
    return real(name)
own._find_and_load = find
"""


@pytest.mark.parametrize("method", ["__init__", "owners"])
@pytest.mark.parametrize("early", [True, False], ids=["ctypes-first", "guard-first"])
def test_failure_of_the_look_is_told_and_breaks_nothing(scene, method, early):
    ran = scene.bare(
        "import ctypes" if early else "pass",
        AS_OURS,
        BROKEN.format(method=method),
        f"import cudaguard; {INSTALL}",
        "import ctypes, one, two; print(one.answer())",
        TAKE,
        "print(ctypes.CDLL('./libplain.so').which())",
        FOUND,
    )
    assert ran.lines[:2] == ["42", "2"]
    assert ran.lines[2:] == ["['CG807']"]
    assert ran.err.count("CudaGuardWarning: [CG807]") == 1


NO_GLIBC = {
    "musl": "import os; os.confstr = lambda name: None",
    "no-such-name": "import os\ndef confstr(name): raise ValueError(name)\nos.confstr = confstr",
    "no-confstr": "import os; del os.confstr",
}


@pytest.mark.parametrize("platform", NO_GLIBC.values(), ids=NO_GLIBC)
def test_nothing_is_looked_at_without_glibc(scene, platform):
    ran = scene.bare(
        "import cudaguard", platform, INSTALL, "import ctypes, one", TAKE, GLOBAL_FLAGS, FOUND
    )
    assert (ran.lines, ran.err) == (["[]"], "")


# A glibc to come may keep its private data elsewhere: the loader is asked, once ctypes is there.
LATER_GLIBC = {
    "as-it-is": "",
    "scope-further-behind": "process._WHOLE_ENTRY = process._PUBLIC + 64",
    "program-elsewhere": "process._PT_PHDR = 0x6474E551",
    "no-structure-for-debuggers": "process._DT_DEBUG = 0x7FFF",
}


@pytest.mark.parametrize("change", LATER_GLIBC)
def test_glibc_that_is_laid_out_otherwise(scene, change):
    ran = scene.bare(
        "import cudaguard",
        "from cudaguard.elf import process",
        LATER_GLIBC[change],
        INSTALL,
        "import one, ctypes",
        TAKE,
        "from cudaguard.system.loader_list import LoaderNews",
        "print(LoaderNews.everything.has_scope)",
        FOUND,
    )
    assert ran.lines == [str(change == "as-it-is"), "['CG812']"]
    assert ran.err.count(TOLD) == ran.err.count("Warning: [") == 1


def test_python_without_ctypes(scene):
    ran = scene.bare(
        "import sys; sys.modules['_ctypes'] = None",
        f"import cudaguard; {INSTALL}",
        "import one",
        GLOBAL_FLAGS,
        "import two; print(two.answer())",
        """
        try:
            import ctypes
        except ImportError as error:
            print(type(error).__name__)
        """,
        FOUND,
    )
    assert ran.lines == ["42", "ModuleNotFoundError", "[]"]
    assert ran.err == ""


# --- who is blamed, and what silences ------------------------------------------------------------

PAST_US = "import _ctypes; _ctypes.dlopen('./libtaker.so', 258)  # no wrapper sees this"
SAID = "print(*[(f.what, f.remedy) for f in cudaguard.status().findings if f.id == 'CG812'])"


def test_flags_set_by_the_program_are_to_be_taken_away_there(scene):
    ran = scene.bare("import ctypes, cudaguard", INSTALL, f"{GLOBAL_FLAGS}\nimport taking", SAID)
    assert "remove RTLD_GLOBAL from the sys.setdlopenflags call at <string>:" in ran.out
    assert "[[rules]]" not in ran.out


def test_flags_set_by_another_package_are_its_affair(scene):
    scene.modules("setter.py")
    scene.child.write("setter.py", f"{GLOBAL_FLAGS}\nimport taking\n")
    scene.child.write(
        "cudaguard.toml",
        "[[rules]]\nid = 'LOCAL001'\nwatch = ['setter']\nwhy = 'x'\n"
        "actions = [{ load_local = 'taking.*.so*' }]\n",
    )
    ran = scene.bare("import ctypes, cudaguard", INSTALL, "import setter", SAID)
    assert 'watch = ["setter"]' in ran.out
    assert 'actions = [{ load_local = "taking.*.so*" }]' in ran.out
    cured = "cudaguard.install(config='cudaguard.toml')"
    assert scene.bare("import ctypes, cudaguard", cured, "import setter", FOUND).lines == ["[]"]


@pytest.mark.parametrize("innocent", ["ctypes.CDLL('./libplain.so')", "import one"])
def test_who_comes_after_what_nobody_saw_is_not_blamed(scene, innocent):
    ran = scene.bare(
        "import ctypes, cudaguard", "cudaguard.install('strict')", PAST_US, innocent, SAID
    )
    assert (
        "libtaker.so was put into the global symbol scope by code that cudaguard does not see"
        in ran.out
    )
    assert "libplain" not in ran.out
    assert "find the code that opens it without" in ran.out


def test_rule_that_has_not_acted_does_not_silence(scene):
    rule = "cudaguard.Rule('L', ('nobody',), 'x', actions=({'load_local': 'libtaker.so*'},))"
    install = f"cudaguard.install(rules=[{rule}])"
    assert scene.bare("import ctypes, cudaguard", install, PAST_US, "import one", FOUND).lines == [
        "['CG812']"
    ]


def test_rule_that_is_conditioned_not_to_act_does(scene):
    rule = (
        "cudaguard.Rule('L', ('nobody',), 'x', actions=({'load_local': 'libtaker.so*'},), "
        "when={'platform': 'win32'})"
    )
    install = f"cudaguard.install(rules=[{rule}])"
    assert scene.bare("import ctypes, cudaguard", install, TAKE, FOUND).lines == ["[]"]
