"""The look at the global symbol scope: when it happens, and that nobody else notices it.

One small library stands for real ones: it exports a name by which libjpeg is told. (Some builds of
Python have zlib in the program itself.) What is said of such a library is tested in
`tests/incidents`.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig

import pytest

from cudaguard.core.dispatch import Dispatch
from cudaguard.core.registry import Registry, entry_of
from cudaguard.core.rule import Rule
from cudaguard.elf.reader import read_elf

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems search per library")
TAKER = "int which_copy(void) { return 1; }\n"
# Has the function itself, and calls it as libraries do: the loader looks the name up.
USER = "int which_copy(void) { return 2; }\nint use(void) { return which_copy(); }\n"
# Has one of Python's functions as well: bound to its own first, it would call that one.
ODD = f"""{USER}
int Py_IsInitialized(void) {{ return 7; }}
int ask(void) {{ return Py_IsInitialized(); }}
"""
PLAIN = "int which(void) { return 2; }\n"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
INSTALL = "cudaguard.install()"
FOUND = "print([finding.id for finding in cudaguard.status().findings])"
TAKE = "ctypes.CDLL('./libtaker.so', ctypes.RTLD_GLOBAL)"
USE = "print(ctypes.CDLL('./libuser.so').use())"
GLOBAL_FLAGS = "import os, sys; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)"
LOCAL_FLAGS = "sys.setdlopenflags(os.RTLD_NOW)"
TOLD = "SymbolScopeWarning: [CG812] "


@pytest.fixture
def scene(native, compiler):
    """The libraries and five extensions in the children's folder."""
    for name, source in (("libtaker.so", TAKER), ("libplain.so", PLAIN), ("libuser.so", USER)):
        compiler.put(native.child.folder / name, source)
    for name, source in (("taking", TAKER), ("using", USER), ("odd", ODD)):
        shutil.copy(compiler.asking(name, "which_copy", body=source), native.child.folder)
    native.extension("one")
    native.extension("two")
    native.modules("plain.py")
    return native


def test_library_is_bound_to_its_own_symbols(scene):
    assert scene.bare("import ctypes", TAKE, USE).lines == ["1"]
    ran = scene.bare("import ctypes, cudaguard", INSTALL, TAKE, USE, FOUND)
    assert (ran.lines, ran.err) == (["2", "[]"], "")


@pytest.mark.parametrize(
    ("name", "layer", "answer"),
    [
        ("libmkl_rt.so.3", "", "1"),
        ("libmkl_rt.so.3", "GNU,ILP64", "2"),
        # onnxruntime-gpu opens it for its plug-ins, and each later load was judged for it.
        ("libonnxruntime_providers_shared.so", "", "1"),
        ("libonnxruntime_providers_cuda.so", "", "2"),
    ],
)
def test_blas_with_wide_integers_is_not_for_everyone(scene, name, layer, answer):
    """MKL is global on purpose, and serves who has a BLAS of the same kind."""
    (scene.child.folder / "libtaker.so").rename(scene.child.folder / name)
    take = TAKE.replace("libtaker.so", name)
    layer = f"import ctypes, os; os.environ['MKL_INTERFACE_LAYER'] = {layer!r}"
    assert scene.bare(layer, take, USE).lines == ["1"]
    ran = scene.bare("import cudaguard", INSTALL, layer, take, USE, FOUND)
    assert (ran.lines, ran.err) == ([answer, "[]"], "")


def test_mkl_answers_for_blas_and_not_for_fftw(scene, compiler):
    """It has some of FFTW's functions; pyfftw found no plan, and pycbc gave wrong numbers."""
    source, folder = USER.replace("which_copy", "fftw_copy"), scene.child.folder
    compiler.put(folder / "libmkl_rt.so.2", TAKER + TAKER.replace("which_copy", "fftw_copy"))
    compiler.put(folder / "libfftw3.so.3", "int fftw_plan(void) { return 0; }")
    link = (*AS_IT_IS, f"-L{folder}", "-l:libfftw3.so.3")
    compiler.put(folder / "libplanner.so", source, *link)
    program = [TAKE.replace("libtaker.so", "libmkl_rt.so.2"), USE, USE.replace("user", "planner")]
    assert scene.bare("import ctypes", *program).lines == ["1", "1"]
    ran = scene.bare("import ctypes, cudaguard", INSTALL, *program, FOUND)
    assert (ran.lines, ran.err) == (["1", "2", "[]"], "")


@pytest.mark.parametrize("first", ["", "mkl_rt"])
def test_what_is_asked_before_an_interposer_answers(scene, first):
    """Tilelang's stub of the CUDA runtime comes after torch's, which is global on purpose."""
    before = f"import ctypes; {first and TAKE.replace('taker', first)}"
    shutil.copy(scene.child.folder / "libtaker.so", scene.child.folder / "libmkl_rt.so")
    ran = scene.bare(before, "import cudaguard; cudaguard.install('warn')", TAKE, USE, FOUND)
    assert ran.lines == ["1", str(["CG812"] * (not first))]


def test_extension_is_bound_to_its_own_symbols(scene):
    program = f"{GLOBAL_FLAGS}; import taking; {LOCAL_FLAGS}; import using; print(using.ask())"
    assert scene.bare(program).lines == ["1"]
    ran = scene.bare("import cudaguard", INSTALL, program, "print(cudaguard.status().changes[-1])")
    said = f"using: bound to its own copies of which_copy, not to those of taking{SUFFIX}"
    assert ran.lines == ["2", f"{said} by CG812 (stays)"]
    assert ran.err == ""


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_it_is_told_where_nothing_may_be_changed(scene, mode):
    ran = scene.bare(f"import ctypes, cudaguard; cudaguard.install({mode!r})", TAKE, USE, FOUND)
    assert ran.lines == ["1", "['CG812']"]
    assert ran.err.count(TOLD) == (mode == "warn")


def test_load_by_which_the_look_begins_is_told_from_what_was_there(scene):
    scene.child.write("decord.py", f"import ctypes; {TAKE}")  # a name that is watched
    # What a look imports is there already: nothing else is news before that load.
    program = f"from cudaguard.system import loader_list\nimport decord, ctypes; {USE}"
    run = (sys.executable, "-m", "cudaguard", "run", "--mode", "warn", "-c", program)
    assert "loads ./libtaker.so with RTLD_GLOBAL, by ctypes" in scene.child.command(*run).stderr


ZLIB = "int inflateResetKeep() { return 1; } int inflateReset() { return inflateResetKeep(); }"
USER_OF_ZLIB = "int inflateReset(); int mine() { return inflateReset(); }"
OWNERS = {"owner": ZLIB.replace("1", "2") + USER_OF_ZLIB, "user": USER_OF_ZLIB}
AS_IT_IS = ("-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed")
FIRST = "zlib = ctypes.CDLL('./libz.so.1')"


@pytest.mark.skipif("libz.so.1" in read_elf(sys.executable).needed, reason="Python needs it itself")
@pytest.mark.parametrize(
    ("mode", "first", "owner", "found", "is_told"),
    [
        ("off", "", "owner", "2 2", False),
        ("warn", "", "owner", "2 2", True),
        ("fix", "", "owner", "1 2", False),
        ("warn", FIRST, "owner", "1 2", False),
        ("warn", "", "user", "1 1", False),
    ],
)
def test_zlib_that_comes_with_another_calls_itself(
    scene, compiler, mode, first, owner, found, is_told
):
    zlib = compiler.put(scene.child.folder / "libz.so.1", ZLIB, "-Wl,-soname,libz.so.1")
    compiler.put(scene.child.folder / "libowner.so", OWNERS[owner], *AS_IT_IS, str(zlib))
    start = f"import ctypes, cudaguard; cudaguard.install({mode!r})"
    use = f"{FIRST}; print(zlib.inflateReset(), mine)"
    ran = scene.bare(start, first, "mine = ctypes.CDLL('./libowner.so').mine()", use)
    assert ran.lines == [found]
    assert ("[CG812] libz.so.1 uses functions of libowner.so instead" in ran.err) is is_told


# Symbol -> does it matter whose copy is used? libcufile.so.0 or libtvm_ffi.so has the others.
NAMES = {
    "_ZNSt11logic_errorC2EPKc": False, "_ZNKSt13runtime_error4whatEv": False,
    "_ZSt24__throw_out_of_range_fmtPKcz": False, "_ZdlPvm": False,
    "_ZSt21ios_base_library_initv": False, "__cxa_call_terminate": False, "_ZdlPv": True,
    "_ZNSt13random_device7_M_initERKSs": True,
}  # fmt: skip


@pytest.mark.parametrize("fronts", [("taker", "user"), ("user",)])  # libGL.so.1, libOpenGL.so.0
def test_front_ends_of_one_library_do_the_same(scene, compiler, fronts):
    file = scene.child.folder / "libGLdispatch.so.0"
    behind = compiler.put(file, "int x;", f"-Wl,-soname,{file.name}")
    for name, source in (("taker", TAKER), ("user", USER)):
        needs = (*AS_IT_IS, str(behind)) if name in fronts else ()
        compiler.put(scene.child.folder / f"lib{name}.so", source, *needs)
    ran = scene.bare("import ctypes, cudaguard; cudaguard.install('warn')", TAKE, USE, FOUND)
    assert ran.lines == ["1", str(["CG812"] * (len(fronts) == 1))]


@pytest.mark.parametrize(("symbol", "matters"), NAMES.items())
def test_names_of_which_any_copy_does(scene, compiler, symbol, matters):
    label = f'int which_copy(void) __asm__("{symbol}");\n'
    for name, source in (("libtaker.so", TAKER), ("libuser.so", USER)):
        compiler.put(scene.child.folder / name, label + source)
    ran = scene.bare("import ctypes, cudaguard; cudaguard.install('warn')", TAKE, USE, FOUND)
    assert ran.lines == ["1", str(["CG812"] * matters)]


def test_detector_that_is_switched_off_does_nothing(scene):
    off = "cudaguard.install(disable=['CG812'])"
    ran = scene.bare("import ctypes, cudaguard", off, TAKE, USE, FOUND)
    assert (ran.lines, ran.err) == (["1", "[]"], "")


# As sanitizers do, and as replacements of malloc do with memory that they have not given.
INTERPOSERS = {
    "dlopen": """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <unistd.h>
        void *dlopen(const char *file, int mode) {
            if (mode & RTLD_DEEPBIND) _exit(9);
            return ((void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen"))(file, mode);
        }
    """,
    "getpid": "int getpid(void) { return 7; }\n",
}
ASKING = f"#include <unistd.h>\n{USER}int process(void) {{ return getpid(); }}\n"


@pytest.mark.parametrize("source", INTERPOSERS.values(), ids=list(INTERPOSERS))
def test_what_was_preloaded_keeps_its_say(scene, compiler, source):
    """A victim that asked its own first would go past it, or end the process."""
    compiler.put(scene.child.folder / "libpreloaded.so", source, "-ldl")
    compiler.put(scene.child.folder / "libasking.so", ASKING)
    code = "print(ctypes.CDLL('./libasking.so').use())"
    done = scene.child.python(
        f"import ctypes, cudaguard\n{INSTALL}\n{TAKE}\n{code}\n{FOUND}",
        env={"LD_PRELOAD": "./libpreloaded.so"},
    )
    assert done.stdout.splitlines() == ["1", "['CG812']"]
    assert "not repaired: " in done.stderr


def test_strict_raises_where_it_cannot_be_changed(scene):
    ran = scene.bare(
        "import ctypes, cudaguard; cudaguard.install('strict')",
        f"{GLOBAL_FLAGS}; import taking; {LOCAL_FLAGS}",
        """
        try:
            import odd
        except cudaguard.ImportOrderError as error:
            print(error)
        """,
        SAID,
    )
    assert "odd uses which_copy of taking." in ran.out
    assert "Py_IsInitialized would come from " in ran.out


# --- ctypes -----------------------------------------------------------------------------------

IS_THERE = "print('ctypes' in sys.modules, '_ctypes' in sys.modules)"


@pytest.mark.parametrize(
    "program",
    [f"{LOCAL_FLAGS}; import one, two; cudaguard.status()", f"{GLOBAL_FLAGS}; import taking"],
)
def test_ctypes_is_not_imported_for_it(scene, program):
    ran = scene.bare("import cudaguard, os, sys", INSTALL, program, IS_THERE)
    assert (ran.lines, ran.err) == (["False False"], "")


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
print(all(counts.values()), cudaguard.status().findings)
"""


def test_threads_that_load_while_others_open_and_close(scene):
    (scene.child.folder / "copies").mkdir()
    for name in ("first", "second"):
        for number in range(100):
            copy = scene.child.folder / "copies" / f"{name}{number}.so"
            shutil.copy(scene.child.folder / "libplain.so", copy)
    extension = str(scene.extension("one"))
    ran = scene.bare(f"EXTENSION = {extension!r}", BUSY, timeout=60)
    assert (ran.lines, ran.err) == (["True ()"], "")


def test_forked_child_looks_by_itself(scene):
    ran = scene.bare(
        "import ctypes, cudaguard, os, sys",
        INSTALL,
        f"""
        if not (child := os.fork()):
            {TAKE}
            {USE}
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
        USE,
        "print(len(cudaguard.status().changes))",
    )
    assert (ran.lines, ran.err) == (["2", "2", "4"], "")


def test_uninstall_ends_it_and_install_begins_anew(scene):
    ran = scene.bare(
        "import ctypes, cudaguard", INSTALL, "cudaguard.uninstall()", TAKE, INSTALL, USE, SAID
    )
    assert ran.lines == ["2", ""]


def test_uninstall_lets_extensions_of_python_pass(scene):
    asked = "print(len(activation.core.extensions.pythons_own.around))"
    ran = scene.bare(
        "import ctypes, cudaguard", INSTALL, TAKE, USE,
        "from cudaguard.core.lifecycle import activation", asked, "cudaguard.uninstall()", asked,
    )  # fmt: skip
    assert ran.lines == ["2", "1", "0"]


def test_library_whose_dependency_is_bound_already_is_told(scene, compiler):
    """Its own copy would call the other one: half of each would be used."""
    own = compiler.put(scene.child.folder / "libown.so", USER, "-Wl,-soname,libown.so")
    source = "int use(void), which_copy(void);\nint both(void) { return use() + which_copy(); }\n"
    compiler.put(scene.child.folder / "libneeding.so", source, str(own), "-Wl,-rpath,$ORIGIN")
    ran = scene.bare(
        "import ctypes", TAKE, "ctypes.CDLL('./libown.so')", f"import cudaguard; {INSTALL}",
        "print(ctypes.CDLL('./libneeding.so').both())", SAID,
    )  # fmt: skip
    assert ran.lines[0] == "2"
    assert "libown.so, which it needs, uses such symbols already" in ran.out


def test_what_was_bound_before_the_guard_is_told(scene):
    ran = scene.bare("import ctypes", TAKE, USE, f"import cudaguard; {INSTALL}", SAID)
    assert ran.lines[0] == "1"
    assert "libuser.so uses which_copy of libtaker.so" in ran.lines[1]
    assert "call cudaguard.install() before the first import" in ran.lines[1]


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
        import cudaguard.{module} as module
        def broken(*args): raise AttributeError('names')
        module.{function} = as_ours(broken)
    return real(name)
own._find_and_load = find
"""


@pytest.mark.parametrize(
    ("module", "function"),
    [("elf.process", "read_scope"), ("features.symbol_scope.interposers", "new_interposers")],
)
@pytest.mark.parametrize("early", [True, False], ids=["ctypes-first", "guard-first"])
def test_failure_of_the_look_is_told_and_breaks_nothing(scene, module, function, early):
    ran = scene.bare(
        "import ctypes" if early else "pass",
        AS_OURS,
        BROKEN.format(module=module, function=function),
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


def test_python_without_ctypes(scene):
    ran = scene.bare(
        "import sys; sys.modules['_ctypes'] = None",
        f"import cudaguard; {INSTALL}",
        "import one",
        GLOBAL_FLAGS,
        "import two; print(two.answer())",
        "import contextlib",
        "with contextlib.suppress(ModuleNotFoundError): import ctypes; print('there')",
        FOUND,
    )
    assert ran.lines == ["42", "[]"]
    assert ran.err == ""


# --- who is blamed, and what silences ------------------------------------------------------------

PAST_US = "import _ctypes; _ctypes.dlopen('./libtaker.so', 258)  # no wrapper sees this"
SAID = "print(*[(f.what, f.evidence, f.remedy) for f in cudaguard.status().findings])"
WARN = "import ctypes, cudaguard; cudaguard.install('warn')"


def test_flags_set_by_the_program_are_to_be_taken_away_there(scene):
    ran = scene.bare(WARN, f"{GLOBAL_FLAGS}\nimport taking", "import using", SAID)
    assert "remove RTLD_GLOBAL from the sys.setdlopenflags call at <string>:" in ran.out
    assert "[[rules]]" not in ran.out


def test_flags_set_by_another_package_are_its_affair(scene):
    scene.modules("setter.py")
    scene.child.write("setter.py", f"{GLOBAL_FLAGS}\nimport taking\n{LOCAL_FLAGS}\n")
    scene.child.write(
        "cudaguard.toml",
        "[[rules]]\nid = 'LOCAL001'\nwatch = ['setter']\nwhy = 'x'\n"
        "actions = [{ load_local = 'taking.*.so*' }]\n",
    )
    ran = scene.bare(WARN, "import setter, using", SAID)
    assert 'watch = ["setter"]' in ran.out
    assert 'actions = [{ load_local = "taking.*.so*" }]' in ran.out
    cured = "cudaguard.install(config='cudaguard.toml')"
    assert scene.bare("import ctypes, cudaguard", cured, "import setter", FOUND).lines == ["[]"]


@pytest.mark.parametrize("innocent", ["ctypes.CDLL('./libplain.so')", "import one"])
def test_who_comes_after_what_nobody_saw_is_not_blamed(scene, innocent):
    ran = scene.bare(WARN, PAST_US, innocent, USE, SAID)
    assert (
        "libtaker.so was put into the global symbol scope by code that cudaguard does not see"
        in ran.out
    )
    assert "libplain" not in ran.out
    assert "find the code that opens it without" in ran.out


@pytest.mark.parametrize(
    ("function", "called"),
    [("curl_easy_init", "libcurl"), ("cuInit", "the CUDA libraries"),
     ("curandGenerate", "the CUDA libraries"), ("current_op", "current_op")],
)  # fmt: skip
def test_library_that_nobody_saw_come_is_told(scene, compiler, function, called):
    """As libxerces of pymeshlab, which uses the libcurl in TensorFlow."""
    scene.modules("owner/__init__.py")
    for name, source in (("libtaker.so", TAKER), ("owner/libx.so", USER)):
        compiler.put(scene.child.folder / name, source.replace("which_copy", function))
    opened = "import owner, _ctypes; _ctypes.dlopen('./owner/libx.so', 2)"
    ran = scene.bare("import ctypes, cudaguard", INSTALL, TAKE, opened, "import one", SAID)
    assert f"libx.so (owner) uses {called} of libtaker.so instead of its own." in ran.out


def test_rule_that_is_conditioned_not_to_act_silences(scene):
    when = "when={'platform': 'win32'}"  # nowhere here
    rule = f"cudaguard.Rule('L', ('x',), 'x', actions=({{'load_local': 'libtaker.so*'}},), {when})"
    install = f"cudaguard.install('warn', rules=[{rule}])"
    assert scene.bare("import ctypes, cudaguard", install, TAKE, USE, FOUND).lines == ["1", "[]"]


def test_library_that_needs_the_global_one_is_let_be(scene, compiler):
    """A plug-in: it has a name of its host, and needs another one of it."""
    folder = scene.child.folder
    compiler.put(folder / "libhost.so", TAKER + "int host_only(void) { return 5; }\n")
    source = USER + "int host_only(void);\nint call(void) { return host_only() + use(); }\n"
    compiler.put(folder / "libplugin.so", source)
    ran = scene.bare(
        "import ctypes, cudaguard", INSTALL, "ctypes.CDLL('./libhost.so', ctypes.RTLD_GLOBAL)",
        "print(ctypes.CDLL('./libplugin.so').call())", FOUND,
    )  # fmt: skip
    assert (ran.lines, ran.err) == (["6", "[]"], "")


# Two releases of one interface: the old one ends the process where it is given something newer.
OLD = """#include <stdlib.h>
void engine_run(int version) { if (version != 1) abort(); }
"""
NEW = "void engine_run(int version) {}\nvoid go(void) { engine_run(2); }\n"
RULE = "[[rules]]\nid='L'\nwatch=['old']\nwhy='x'\nactions=[{load_local='libold.so*'}]\n"


@pytest.mark.parametrize("mode", ["RTLD_GLOBAL", "RTLD_LOCAL"])
@pytest.mark.parametrize(("tool", "rules"), [("run", RULE), ("run", ""), ("trace", "")])
def test_crash_is_told_with_whose_symbols_were_used(scene, compiler, tool, rules, mode):
    for name, source in (("libold.so", OLD), ("libnew.so", NEW)):
        compiler.put(scene.child.folder / name, source)
    here, is_bound = os.path.realpath(scene.child.folder), mode == "RTLD_GLOBAL"
    program = f"import ctypes, os; ctypes.CDLL('./libold.so', ctypes.{mode})"
    program += f"; ctypes.CDLL('./libnew.so').go(); {'' if is_bound else 'os.abort()'}"
    command = (sys.executable, "-m", "cudaguard", tool, "--mode", "observe", "-c", program)
    env = {"CUDAGUARD_CONFIG": str(scene.child.write("cudaguard.toml", rules))}
    said = scene.child.command(*command, env=env, check=False).stderr
    # Once: as a cause where a warning would tell of it, else by itself, and so in a trace.
    words = f"engine_run resolves to {here}/libold.so, not {here}/libnew.so"
    how = "__main__ (<string>:1) loads ./libold.so with RTLD_GLOBAL, by ctypes"
    assert [said.count(one) for one in ("crashed (SIGABRT)", words, how)] == [1, is_bound, is_bound]
    table = "symbols: libnew.so uses engine_run of libold.so instead of its own.\n"
    assert (table in said) == (is_bound and (tool == "trace" or bool(rules)))
    assert ("\n  fix: use mode 'fix' " in said) == (is_bound and tool == "run" and not rules)


def test_symbol_resolves_to_the_first_of_two(scene):
    """Nothing resolves to the second one, though it is global as well."""
    shutil.copy(scene.child.folder / "libtaker.so", scene.child.folder / "libsecond.so")
    second = "ctypes.CDLL('./libsecond.so', ctypes.RTLD_GLOBAL)"
    ran = scene.bare("import ctypes, cudaguard; cudaguard.install('warn')", TAKE, second, USE)
    assert "libuser.so uses which_copy of libtaker.so instead of its own." in ran.err
    assert ran.err.count(TOLD) == 1


# --- which libraries a rule may keep out of it


@pytest.fixture
def widest():
    """A guard whose one rule has the widest pattern."""
    rule = Rule("WIDE", ("pkg",), "why", actions=({"load_local": "lib*.so*"},))
    made = Dispatch()
    made.reporter.mode = "fix"
    made.put_in_force(Registry([(entry_of(rule), "test")], {}))
    return made


def test_library_of_its_own_is_kept_local(widest):
    stays_local, opened = widest.native.scope_of_library("/pkg/libother.so.1")
    assert stays_local
    assert widest.reporter.changes == ()
    opened()
    (change,) = widest.reporter.changes
    assert change == "libother.so.1: kept in local symbol scope by WIDE (stays)"


@pytest.mark.parametrize(
    "name", ["libtorch_global_deps.so", "libgomp-a34b3233.so.1", "libcudart.so.12", "libc.so.6"]
)
def test_wide_pattern_takes_nothing_from_what_is_global_on_purpose(widest, name):
    assert widest.native.scope_of_library(f"/pkg/{name}") is None


def test_other_names_are_no_business_of_the_rule(widest):
    assert widest.native.scope_of_library("/pkg/plugin.so") is None
