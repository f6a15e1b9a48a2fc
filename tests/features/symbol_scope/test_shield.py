"""One extension is loaded so that it finds its own names first, by a rule of the user's own.

`libtaker.so` is global and defines `which`; each extension has a `which` of its own, and `ask`
tells whose it has been given: 1 the taker's, 2 its own.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig

import pytest

pytestmark = pytest.mark.skipif(
    not (sys.platform.startswith("linux") and hasattr(os, "RTLD_DEEPBIND")),
    reason="this platform has no RTLD_DEEPBIND",
)

TAKER = "int which(void) { return 1; }\n"
VICTIM = """
#include <Python.h>
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
int which(void) { return 2; }
#ifdef MISSING_SYMBOL
int a_symbol_that_nobody_has(void);
int use_it(void) { return a_symbol_that_nobody_has(); }
#endif
#ifdef NEEDS_INNER
int inner(void);
#else
static int inner(void) { return which(); }
#endif
static PyObject *ask(PyObject *self, PyObject *args) { return PyLong_FromLong(inner()); }
static PyMethodDef methods[] = {{"ask", ask, METH_NOARGS, 0}, {0}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "victim", 0, -1, methods};
PyMODINIT_FUNC JOIN(PyInit_, NAME)(void) {
#ifdef FAILING
    PyErr_SetString(PyExc_ImportError, "made to fail");
    return NULL;
#endif
    return PyModule_Create(&definition);
}
"""
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
TAKE = "import ctypes, os, sys; ctypes.CDLL('./libtaker.so', ctypes.RTLD_GLOBAL)"
ASK = "import victim; print(victim.ask())"
SAID = """
import cudaguard
for found in cudaguard.status().findings:
    print("finding", found.id, found.what, *found.evidence)
for entry in cudaguard.status().changes:
    if entry.endswith("(stays)"):
        print("touched", entry)
"""
HOW = "loaded with RTLD_DEEPBIND, so that it finds its own symbols first"
TOUCHED = f"touched victim: {HOW} by LOCAL1 (stays)"


def install(
    mode: str = "fix",
    *,
    enable: tuple[str, ...] = ("LOCAL1",),
    pattern: str = "victim*.so",
    watch: tuple[str, ...] = ("victim",),
    **fields,
) -> str:
    """Code that installs the guard with a rule for the extension."""
    more = "".join(f", {name}={value!r}" for name, value in fields.items())
    return (
        f"import cudaguard; RULE = cudaguard.Rule('LOCAL1', {watch!r}, 'It is taken.', "
        f"actions=({{'load_deepbind': '{pattern}'}},), grade='opt-in'{more})\n"
        f"cudaguard.install({mode!r}, rules=[RULE], enable={enable!r})"
    )


class Scene:
    """The library and the extensions in the children's folder."""

    def __init__(self, pair, compiler) -> None:
        self.pair = pair
        self.compiler = compiler
        self.folder = pair.child.folder
        self.put(compiler.library("libtaker.so", TAKER))
        self.victim()

    def put(self, built, folder: str = "."):
        target = self.folder / folder
        target.mkdir(parents=True, exist_ok=True)
        return shutil.copy(built, target)

    def victim(self, *flags: object, name: str = "victim", folder: str = ".", suffix=SUFFIX):
        """Compile an extension module."""
        include = f"-I{sysconfig.get_path('include')}"
        words = (include, f"-DNAME={name}", *map(str, flags))
        return self.put(self.compiler.library(name + suffix, VICTIM, *words), folder)

    def run(self, *code: str, **options):
        return self.pair.bare(*code, **options)

    def lines(self, *code: str, **options) -> list[str]:
        """Run pieces of code that nothing is said of; returns what they print."""
        ran = self.run(*code, **options)
        assert ran.err == ""
        return ran.lines

    def refused(self, *code: str, **options) -> str:
        """Run code that ends with an extension unshielded; returns the reason."""
        ran = self.run(*code, SAID, **options)
        answer, finding = ran.lines
        assert answer == "1"
        head = (
            "finding LOCAL1 victim was not loaded with RTLD_DEEPBIND, which rule LOCAL1 asks for. "
        )
        assert finding.startswith(head)
        assert "SymbolScopeWarning: [LOCAL1] victim was not loaded with RTLD_DEEPBIND" in ran.err
        assert "write a rule that loads the interposing library with load_local" in ran.err
        return finding[len(head) :]


@pytest.fixture
def scene(pair, compiler) -> Scene:
    return Scene(pair, compiler)


# --- the cure ------------------------------------------------------------------------------------


def test_alone_it_has_its_own(scene):
    assert scene.lines(ASK) == ["2"]


def test_without_the_rule_its_names_are_taken(scene):
    assert scene.lines(TAKE, ASK) == ["1"]
    assert scene.lines(TAKE, "import cudaguard; cudaguard.install()", ASK) == ["1"]


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_shielded_it_has_its_own(scene, mode):
    assert scene.lines(TAKE, install(mode), ASK, SAID) == ["2", TOUCHED]
    assert scene.lines(install(mode), TAKE, ASK, SAID) == ["2", TOUCHED]


@pytest.mark.parametrize("mode", ["warn", "observe", "off"])
def test_modes_that_repair_nothing_repair_nothing(scene, mode):
    assert scene.lines(TAKE, install(mode), ASK, SAID) == ["1"]


def test_rule_that_is_not_enabled_or_does_not_apply_does_nothing(scene):
    for rule in (
        install(enable=()),
        install(when={"platform": "win32"}),
        install(dist=("no-such-distribution",)),
        install(watch=("other",)),
        install(pattern="other*.so"),
        install(pattern="victim"),
    ):
        assert scene.lines(TAKE, rule, ASK, SAID) == ["1"]


def test_configuration_file_and_environment_variables(scene):
    rules = scene.pair.child.write(
        "rules.toml",
        """
        [[rules]]
        id = "LOCAL1"
        watch = ["victim"]
        actions = [{ load_deepbind = "victim*.so" }]
        grade = "opt-in"
        why = "It is taken."
        """,
    )
    env = {"CUDAGUARD": "fix", "CUDAGUARD_CONFIG": str(rules)}
    assert scene.lines(TAKE, ASK, env=env) == ["1"]
    assert scene.lines(TAKE, ASK, env={**env, "CUDAGUARD_RULES": "+LOCAL1"}) == ["2"]


def test_by_file_and_in_a_package(scene):
    """As torch loads what it has compiled: no finder is asked."""
    scene.victim(folder="compiled", suffix=".so")
    by_file = """
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("victim", os.path.abspath("compiled/victim.so"))
        victim = module_from_spec(spec)
        spec.loader.exec_module(victim)
        print(victim.ask())
        """
    assert scene.lines(TAKE, by_file) == ["1"]
    assert scene.lines(TAKE, install(), by_file) == ["2"]
    scene.victim(folder="package")
    scene.pair.child.write("package/__init__.py", "from package import victim")
    ask = "import package; print(package.victim.ask())"
    rule = install(watch=("package",))
    assert scene.lines(TAKE, ask) == ["1"]
    assert scene.lines(TAKE, rule, ask) == ["2"]


def test_what_it_brings_is_shielded_with_it(scene):
    inner = "int which(void) { return 2; } int inner(void) { return which(); }"
    library = scene.compiler.library("libinner.so", inner, "-Wl,-soname,libinner.so")
    scene.put(library)
    scene.victim("-DNEEDS_INNER", library, "-Wl,-rpath,$ORIGIN")
    assert scene.lines(TAKE, ASK) == ["1"]
    assert scene.lines(TAKE, install(), ASK) == ["2"]


def test_others_and_the_flags_are_untouched(scene):
    """Nothing that another import could see is switched on for this one."""
    scene.victim(folder="package")
    scene.victim(name="other", folder="package")
    scene.pair.child.write(
        "package/__init__.py",
        """
        import sys
        from package import other
        before = sys.getdlopenflags()
        from package import victim
        print(sys.getdlopenflags() == before)
        """,
    )
    scene.victim(name="outside")
    ask = "import package, outside; print(package.other.ask(), package.victim.ask(), outside.ask())"
    flags = "print(sys.getdlopenflags() == 2 == os.RTLD_NOW)"
    rule = install(watch=("package",))
    assert scene.lines(TAKE, flags, ask, flags) == ["True", "True", "1 1 1", "True"]
    assert scene.lines(TAKE, rule, flags, ask, flags) == ["True", "True", "1 2 1", "True"]


def test_it_is_mapped_once_and_local(scene):
    """The module comes from the very file that was mapped, and its names stay its own."""
    look = """
        with open("/proc/self/maps") as maps:
            print(sum("victim" in line and " 00000000 " in line for line in maps))
        print(hasattr(ctypes.CDLL(None), "PyInit_victim"), victim.__spec__.loader is not None)
        """
    plain, shielded = scene.lines(TAKE, ASK, look), scene.lines(TAKE, install(), ASK, look)
    assert plain == ["1", "1", "False True"]
    assert shielded == ["2", *plain[1:]]


def test_it_is_logged_and_an_event(scene):
    log = "import logging; logging.basicConfig(level=logging.INFO)"
    show = "print([e.name for e in cudaguard.status().events if e.kind == 'repair'])"
    journal = scene.pair.child.folder / "journal"
    written = {"CUDAGUARD_JOURNAL": str(journal)}
    ran = scene.run(log, TAKE, install(), ASK, show, env=written)
    assert ran.lines == ["2", "['victim']"]
    lines = map(json.loads, journal.read_text(encoding="utf-8").splitlines())
    (done,) = (line["details"] for line in lines if line["kind"] == "repair")
    assert done == {"rule": "LOCAL1", "verb": "load_deepbind", "subject": "victim", "how": HOW}
    (line,) = ran.err.splitlines()
    assert line.startswith(f"INFO:cudaguard:LOCAL1: victim: {HOW} at ")
    assert "CUDAGUARD_RULES=-LOCAL1" in line


def test_after_the_guard_has_gone_it_is_loaded_as_usual(scene):
    assert scene.lines(TAKE, install(), "cudaguard.uninstall()", ASK, SAID) == ["1"]
    stays = scene.lines(TAKE, install(), "import victim; cudaguard.uninstall()", ASK, SAID)
    assert stays == ["2", TOUCHED]


# --- refusals ------------------------------------------------------------------------------------


def test_preloaded_library(scene):
    """What it replaces would be replaced everywhere but in the extension."""
    preloaded = scene.put(scene.compiler.library("libpreloaded.so", "int replaced;\n"))
    code = (TAKE, install(), ASK)
    reason = scene.refused(*code, env={"LD_PRELOAD": str(preloaded)})
    assert reason.startswith(
        f"LD_PRELOAD is set ({preloaded}), and RTLD_DEEPBIND would hide its functions"
    )
    # Programs that remove the variable, so that their children are without, have it all the same.
    removed = ("import os; del os.environ['LD_PRELOAD']", *code)
    assert scene.refused(*removed, env={"LD_PRELOAD": str(preloaded)}) == reason


def test_what_a_preloaded_library_would_suffer(scene):
    """The reason of the refusal: a function that is replaced for all is not for the extension."""
    source = "int which(void) { return 1; }\n"
    preloaded = scene.put(scene.compiler.library("libreplaces.so", source))
    anyway = "from cudaguard.features.symbol_scope.repair import shield\n"
    anyway += "shield._excluded = lambda extension: ''"
    env = {"LD_PRELOAD": str(preloaded)}
    assert scene.lines(ASK, env=env) == ["1"]
    assert scene.lines(anyway, install(), ASK, env=env) == ["2"]


@pytest.mark.parametrize("soname", ["libpython9.9.so", "libpython9.9.so.1.0", "libpython3.so"])
def test_extension_that_needs_a_python_that_is_not_loaded(scene, soname):
    """The program has the interpreter in itself: this would be a second one."""
    stub = scene.compiler.library(soname, "int nothing;\n", f"-Wl,-soname,{soname}")
    scene.put(stub)
    scene.victim("-Wl,--no-as-needed", stub, "-Wl,-rpath,$ORIGIN")
    assert scene.lines(TAKE, ASK) == ["1"]
    reason = scene.refused(TAKE, install(), ASK)
    assert reason == f"it needs {soname}, and would load a second Python"


def test_extension_that_needs_a_python_that_is_loaded(scene):
    stub = scene.compiler.library(
        "libpython9.9.so", "int nothing;\n", "-Wl,-soname,libpython9.9.so"
    )
    scene.put(stub)
    scene.victim("-Wl,--no-as-needed", stub, "-Wl,-rpath,$ORIGIN")
    load = "ctypes.CDLL('./libpython9.9.so')"
    assert scene.lines(TAKE, load, install(), ASK, SAID) == ["2", TOUCHED]


def test_extension_that_is_mapped_already(scene):
    load = f"ctypes.CDLL('./victim{SUFFIX}')"
    assert scene.refused(TAKE, load, install(), ASK) == "it is already loaded"


def test_address_sanitizer(scene):
    scene.put(scene.compiler.library("libasan.so", "void __asan_init(void) {}\n"))
    load = "ctypes.CDLL('./libasan.so', ctypes.RTLD_GLOBAL)"
    reason = scene.refused(TAKE, load, install(), ASK)
    assert reason == "AddressSanitizer is loaded, which does not allow RTLD_DEEPBIND"


def test_platform_without_the_flag(scene):
    without = "del os.RTLD_DEEPBIND"
    assert scene.refused(TAKE, without, install(), ASK) == "this platform has no RTLD_DEEPBIND"


# --- extensions that cannot be imported ----------------------------------------------------------

FAILURE = """
try:
    import victim
except ImportError as error:
    error = error.__cause__ or error  # what the loader says of it is explained by one of ours
    print(type(error).__name__, error, error.name, os.path.basename(error.path or ""))
"""


@pytest.mark.parametrize("define", ["MISSING_SYMBOL", "FAILING"])
def test_error_of_the_extension_is_the_import_s_own(scene, define):
    scene.victim(f"-D{define}")
    unguarded = scene.lines(TAKE, FAILURE)
    assert unguarded[0].startswith("ImportError ")
    ran = scene.run(TAKE, install(), FAILURE, SAID)
    assert ran.lines[: len(unguarded)] == unguarded
    # Before Python 3.11 an import that rules watch is not looked at to its end.
    if define == "MISSING_SYMBOL" and sys.version_info >= (3, 11):
        finding, told = ran.lines[len(unguarded) :]
        assert "CG841" in told
        assert "the loader refuses it: " in finding
        assert "undefined symbol: a_symbol_that_nobody_has" in finding


@pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF\x02\x01" + b"\0" * 200])
def test_file_that_is_no_library(scene, content):
    (scene.folder / f"victim{SUFFIX}").write_bytes(content)
    unguarded = scene.lines(TAKE, FAILURE)
    assert unguarded[0].startswith("ImportError ")
    assert scene.run(TAKE, install(), FAILURE).lines == unguarded


# To be put into tests/hook/test_shield.py.


def test_file_in_the_working_folder_without_a_slash(scene):  # fails on 3.9: refused
    scene.victim(suffix=".so")
    by_file = """
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("victim", "victim.so")
        victim = module_from_spec(spec)
        spec.loader.exec_module(victim)
        print(victim.ask())
        """
    assert scene.lines(TAKE, by_file) == ["1"]
    assert scene.lines(TAKE, install(), by_file) == ["2"]


def test_strict_raises_where_it_could_not_shield(scene):  # nothing is raised or deferred
    load = f"ctypes.CDLL('./victim{SUFFIX}')"
    caught = """
        try:
            import victim
        except ImportError as error:
            print(type(error).__name__, error)
        """
    ran = scene.run(TAKE, load, install("strict"), caught)
    assert ran.lines[0] == (
        "ImportOrderError victim was not loaded with RTLD_DEEPBIND, which rule LOCAL1 asks for."
    )
