"""Libraries of installed packages are opened before a module that would take others, or none.

A path: the package `taker` opens a copy of `libfoo.so.2` that lies in a folder of
LD_LIBRARY_PATH and is too old for the extension `consumer`, as cupy, NCCL and torch.
`dependencies`: the package `runner` opens a plug-in of its own when it is told to start,
and the loader finds nothing of what that needs, as onnxruntime and its CUDA provider.
"""

from __future__ import annotations

import os
import shutil

import pytest

from ...native_fixtures import GLIBC_ONLY

pytestmark = GLIBC_ONLY

SONAME = "libfoo.so.2"
GOOD_FILE = f"nvidia/x/lib/{SONAME}"
OLD = "int foo_version(void) { return 1; }\n"
GOOD = "int foo_version(void) { return 2; }\nint foo_register(void) { return 2; }\n"
TAKER = """
import ctypes
library = ctypes.CDLL({name!r})
"""
RUNNER = """
import os
plugin = os.path.join(os.path.dirname(__file__), "capi", "libplugin.so")
def start():
    import ctypes
    try:
        print("runs on", ctypes.CDLL(plugin).work())
    except OSError as error:
        print("falls back,", error)
"""

ASK = """
try:
    import consumer
    print("consumer", consumer.ask())
except ImportError as error:
    print("ImportError", str(error).rpartition("undefined symbol: ")[2].split()[0])
"""
RED, GREEN = "ImportError foo_register", "consumer 2"
START = "import runner; runner.start()"
# The libraries of the test's folder that are in the process.
MAPPED = """
import os
with open("/proc/self/maps") as maps:
    files = {line.split(maxsplit=5)[-1].strip() for line in maps}
here = os.path.realpath(".") + os.sep
files = sorted(file[len(here):] for file in files if file.startswith(here))
print(*(file for file in files if not os.path.basename(file).startswith("consumer")))
"""
SAID = """
import cudaguard
status = cudaguard.status()
for found in status.findings:
    print("finding", found.id, found.what, *found.evidence)
for entry in status.changes:
    if entry.endswith("(stays)"):
        print("touched", entry)
for event in status.events:
    if event.kind == "repair":
        print("repair", event.name, event.where)
"""
QUIETLY = "\nprint(*[e for e in cudaguard.status().changes if e.endswith('(stays)')])"
CAUGHT = """
try:
    import {name}
except ImportError as error:
    what, *rest = str(error).splitlines()  # and the remedy
    print(type(error).__name__, what, error.name, type(error.__cause__).__name__)
print({name!r} in sys.modules)
"""
HAS_DRIVER = """
from cudaguard import system; from cudaguard.system import preload
system.DRIVER_FILES = {files!r}
preload.DRIVER = "libc.so.6"  # a library that is there
"""


class Scene:
    """A folder `site` with the modules and what nvidia's wheels would bring, and `old`."""

    def __init__(self, child, compiler) -> None:
        self.child = child
        self.compiler = compiler
        self.folder = child.folder
        self.path = ["site"]
        self.libraries = ["old"]
        self.good = self.put(GOOD_FILE, GOOD)
        self.put(SONAME, OLD, at="old")
        self.taker(SONAME)
        self.extension()

    def put(self, path: str, source: str, *flags: str, at: str = "site", soname: str = ""):
        """Compile a library into a folder; it is called after its file. Returns its path."""
        flags = (f"-Wl,-soname,{soname or os.path.basename(path)}", "-Wl,--no-as-needed", *flags)
        return str(self.compiler.put(self.folder / at / path, source, *flags))

    def taker(self, name: str) -> None:
        """Write the package that opens the old library, by the name given."""
        self.child.write("site/taker.py", TAKER.format(name=name))

    def extension(self) -> None:
        """Compile the consumer; like torch's, its path is asked before LD_LIBRARY_PATH."""
        path = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/nvidia/x/lib"
        built = self.compiler.asking("consumer", "foo_register", self.good, path)
        shutil.copy(built, self.folder / "site")

    def run(self, *code: str, env: dict[str, str] | None = None, check: bool = True):
        """Run pieces of code in a fresh interpreter."""
        folders = [os.path.join(self.folder, name) for name in self.path]
        libraries = [os.path.join(self.folder, name) for name in self.libraries]
        variables = {
            "PYTHONPATH": os.pathsep.join(folders),
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            **(env or {}),
        }
        return self.child.python("\n".join(code), env=variables, timeout=60, check=check)

    def lines(self, *code: str, **options) -> list[str]:
        """Run pieces of code that nothing is said of; returns what they print."""
        done = self.run(*code, **options)
        assert done.stderr == ""
        return done.stdout.splitlines()

    def opened(self, *code: str, **options) -> list[str]:
        """Run pieces of code; returns the files that the guard says it opened, in order."""
        lines = self.lines(*code, SAID, **options)
        here = os.path.join(self.folder, "")
        entries = [line for line in lines if line.startswith("touched ")]
        return [line.split()[1].partition(":")[0].replace(here, "") for line in entries]


def install(*actions: dict, mode: str = "fix", watch: str = "taker", more: str = "", **fields):
    """Code that installs the guard with one rule."""
    actions = actions or ({"preload": GOOD_FILE},)
    fields = "".join(f", {name}={value!r}" for name, value in fields.items())
    rule = f"cudaguard.Rule('LOCAL1', ({watch!r},), 'It takes another.', actions={actions}{fields})"
    return f"import cudaguard, sys; cudaguard.install({mode!r}, rules=[{rule}]{more})"


@pytest.fixture
def scene(child, compiler) -> Scene:
    return Scene(child, compiler)


# --- preload: the cure -------------------------------------------------------------------


def by_another_file(scene) -> None:
    """As cupy does it: the file carries its full version, and the loader goes by the soname."""
    scene.put(f"{SONAME}.16", OLD, at="old", soname=SONAME)
    (scene.folder / "old" / SONAME).unlink()
    scene.taker(f"{SONAME}.16")


@pytest.mark.parametrize("by", ["soname", "file"])
def test_without_the_rule_the_old_one_serves_the_consumer(scene, by):
    if by == "file":
        by_another_file(scene)
    assert scene.lines("import cudaguard; cudaguard.install()", "import taker", ASK)[-1] == RED


@pytest.mark.parametrize("by", ["soname", "file"])
@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_good_one_is_opened_before_the_package(scene, mode, by):
    if by == "file":
        by_another_file(scene)
    version = "print(taker.library.foo_version())"
    lines = scene.lines(install(mode=mode), "import taker", ASK, MAPPED, version)
    good = f"site/{GOOD_FILE}"
    assert lines[0] == GREEN
    # Who asks for the soname gets the good one; who asks for the file gets what he asks for.
    assert lines[1:] == ([good, "2"] if by == "soname" else [f"old/{SONAME}.16 {good}", "1"])


def test_it_is_in_local_scope(scene):
    scene.child.write("site/taker.py", "")
    look = """
import ctypes
import taker
print(hasattr(ctypes.CDLL(None), "foo_version"), hasattr(ctypes.CDLL(None), "foo_register"))
"""
    for flags in ("", "import os; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)"):
        assert scene.lines(install(), flags, look, MAPPED) == ["False False", f"site/{GOOD_FILE}"]
    loud = f"import ctypes; ctypes.CDLL('site/{GOOD_FILE}', ctypes.RTLD_GLOBAL)"
    assert scene.lines(loud, look)[0] == "True True"


# --- preload: when nothing is done -------------------------------------------------------

OPEN = "import ctypes; first = ctypes.CDLL({!r})"


@pytest.mark.parametrize("file", [SONAME, f"{SONAME}.16", "libother.so"])
@pytest.mark.parametrize("at", ["old", "elsewhere"])
def test_nothing_is_done_where_a_library_of_the_soname_is_mapped(scene, at, file):
    scene.put(file, OLD, at=at, soname=SONAME)
    lines = scene.lines(OPEN.format(f"{at}/{file}"), install(), "import taker", MAPPED, SAID)
    assert lines == [f"{at}/{file}"]


def test_nothing_is_done_a_second_time(scene):
    again = "del sys.modules['taker']; import taker"
    other = install().replace("LOCAL1", "LOCAL2")
    assert scene.opened(install(), "import taker", again, other, again) == [f"site/{GOOD_FILE}"]


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_nothing_is_done_where_it_is_not_installed(scene, mode):
    shutil.rmtree(scene.folder / "site" / "nvidia")
    lines = scene.run(install(mode=mode), "import taker", ASK, MAPPED, SAID).stdout.splitlines()
    assert lines == [RED, f"old/{SONAME}"]
    scene.path = []
    assert scene.lines(install(mode=mode, watch="json"), "import json", MAPPED, SAID) == [""]


@pytest.mark.parametrize("mode", ["warn", "observe"])
def test_other_modes_open_nothing(scene, mode):
    lines = scene.run(install(mode=mode), "import taker", ASK, MAPPED, SAID).stdout.splitlines()
    assert lines[:2] == [RED, f"old/{SONAME}"]
    assert not any(line.startswith(("touched", "repair")) for line in lines)


# --- preload: which file -----------------------------------------------------------------


@pytest.mark.parametrize("order", [("site", "more"), ("more", "site")])
def test_first_folder_of_the_path_wins(scene, order):
    scene.put(GOOD_FILE, GOOD, at="more")
    scene.path = list(order)
    assert scene.lines(install(), "import taker", MAPPED) == [f"{order[0]}/{GOOD_FILE}"]


def test_odd_entries_of_the_path_are_passed_over(scene):
    odd = "import pathlib; sys.path[:0] = ['', None, 3, pathlib.Path('site'), '/nowhere']"
    assert scene.lines(install(), odd, "import taker", MAPPED) == [f"site/{GOOD_FILE}"]


CHAIN = {"a": "b", "b": "c", "c": "a"}


@pytest.mark.parametrize("last", CHAIN)
def test_files_that_need_one_another_are_opened_in_an_order_that_works(scene, last):
    """None of them has a path to the others: only one that is mapped already is found."""
    first = CHAIN[last]
    (middle,) = set(CHAIN) - {first, last}
    built = ()
    for name in (first, middle, last):
        built = (scene.put(f"nvidia/x/lib/lib{name}.so.1", "int part;", *built),)
    names = [f"site/nvidia/x/lib/lib{name}.so.1" for name in (first, middle, last)]
    refused = scene.run(OPEN.format(f"./{names[2]}"), check=False).stderr
    assert f"lib{middle}.so.1: cannot open shared object file" in refused
    opened = scene.opened(
        install({"preload": "nvidia/x/lib/lib?.so.1"}, mode="strict"), "import taker"
    )
    assert sorted(opened) == sorted(names)
    positions = [opened.index(name) for name in names]
    assert positions == sorted(positions)


# --- preload: what is told ---------------------------------------------------------------


def test_what_was_opened_stays_after_uninstall_and_is_listed(scene):
    lines = scene.lines(install(), "import taker; cudaguard.uninstall()", MAPPED, QUIETLY, ASK)
    file = scene.folder / "site" / GOOD_FILE
    wanted = [f"site/{GOOD_FILE}", f"{file}: loaded before taker by LOCAL1 (stays)", GREEN]
    assert [line for line in lines if line] == wanted


# --- preload: refusals -------------------------------------------------------------------

WHAT = "cudaguard could not load a library that taker needs before it."


def missing(scene) -> str:
    absent = scene.compiler.library("libabsent.so.1", "int absent;", "-Wl,-soname,libabsent.so.1")
    scene.put(GOOD_FILE, GOOD, str(absent))
    return "libabsent.so.1: cannot open shared object file: No such file or directory"


def damaged(scene) -> str:
    (scene.folder / "site" / GOOD_FILE).write_bytes(b"#!/bin/sh\n" * 100)
    return f"{scene.folder}/site/{GOOD_FILE}: invalid ELF header"


REFUSED = pytest.mark.parametrize("refused", [missing, damaged])


@REFUSED
def test_library_that_is_refused_is_a_finding_and_the_import_goes_on(scene, refused):
    reason = refused(scene)
    done = scene.run(install(), "import taker; print(taker.library.foo_version())", MAPPED, SAID)
    assert done.stdout.splitlines() == [
        "1",
        f"old/{SONAME}",
        f"finding LOCAL1 {WHAT} OSError: {reason}",
    ]
    assert f"<string>:2: ImportOrderWarning: [LOCAL1] {WHAT}" in done.stderr
    assert reason in done.stderr
    assert "It takes another." in done.stderr
    assert "CUDAGUARD_RULES=-LOCAL1" in done.stderr


@REFUSED
def test_library_that_is_refused_is_an_error_in_strict(scene, refused):
    reason = refused(scene)
    caught = CAUGHT.format(name="taker")
    done = scene.run(install(mode="strict"), caught, caught, MAPPED, SAID)
    raised = f"ImportOrderError {WHAT} taker OSError"
    *lines, mapped, finding = done.stdout.splitlines()
    assert lines == [raised, "False"] * 2
    assert mapped == ""
    assert finding.endswith(f"OSError: {reason}")
    assert done.stderr.count("ImportOrderWarning: [LOCAL1]") == 1


def test_next_action_is_carried_out_after_a_refusal(scene):
    damaged(scene)
    scene.put("nvidia/y/lib/liby.so.1", "int y;")
    actions = ({"preload": GOOD_FILE}, {"preload": "nvidia/y/lib/liby.so.1"})
    done = scene.run(install(*actions), "import taker", MAPPED)
    assert done.stdout == f"old/{SONAME} site/nvidia/y/lib/liby.so.1\n"


# --- dependencies: the cure ---------------------------------------------------------------

NEEDS = {"preload": "runner/capi/libplugin.so", "dependencies": True}
MATH = "nvidia/math/lib/libmath.so.12"
LIGHT = "nvidia/math/lib/libmathlt.so.12"
DEEP = "nvidia/deep/lib/libdeep.so.9"
NOT_FOUND = "falls back, lib{}: cannot open shared object file: No such file or directory"


class Runner(Scene):
    """The plug-in needs libmath, which needs libmathlt, and libdeep; nothing needs libidle."""

    def __init__(self, child, compiler) -> None:
        super().__init__(child, compiler)
        child.write("site/runner/__init__.py", RUNNER)
        child.write("driver", "")
        self.libraries = []
        self.put("nvidia/idle/lib/libidle.so.1", "int idle;")
        self.light = self.put(LIGHT, "int light(void) { return 1; }")
        source = "int light(void); int math(void) { return light(); }"
        self.math = self.put(MATH, source, self.light)
        self.deep = self.put(DEEP, "int deep(void) { return 1; }")
        self.plugin()

    def plugin(self, *flags: str) -> None:
        """Compile the plug-in."""
        source = "int math(void); int deep(void); int work(void) { return math() + deep(); }"
        self.put("runner/capi/libplugin.so", source, self.math, self.deep, *flags)


@pytest.fixture
def runner(child, compiler) -> Runner:
    return Runner(child, compiler)


def needing(*actions: dict, driver: bool = True, **fields) -> str:
    """Code that installs the guard with one rule, on a machine with a driver or without."""
    prelude = HAS_DRIVER.format(files=("/nowhere/1", "driver" if driver else "/nowhere/2"))
    return prelude + install(*(actions or (NEEDS,)), watch="runner", **fields)


NEEDED = [f"site/{DEEP}", f"site/{MATH}", f"site/{LIGHT}"]  # sorted
RUNS = "runs on 2"


def test_without_the_rule_the_plugin_finds_nothing(runner):
    code = "import cudaguard; cudaguard.install()"
    assert runner.lines(code, START) == [NOT_FOUND.format("math.so.12")]


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_what_the_plugin_needs_is_opened_and_nothing_else(runner, mode):
    code = needing(mode=mode)
    assert runner.lines(code, "import runner", MAPPED) == [" ".join(NEEDED)]
    assert runner.lines(code, START)[0] == RUNS
    opened = runner.opened(code, "import runner")
    assert sorted(opened) == NEEDED
    assert opened.index(f"site/{LIGHT}") < opened.index(f"site/{MATH}")


# --- dependencies: when nothing is done ---------------------------------------------------


def test_nothing_is_opened_without_a_driver(runner):
    lines = runner.lines(needing(driver=False), START, MAPPED)
    assert lines == [NOT_FOUND.format("math.so.12"), ""]


def test_preload_needs_no_driver(runner):
    assert runner.lines(needing({"preload": DEEP}, driver=False), "import runner", MAPPED) == [
        f"site/{DEEP}"
    ]


@pytest.mark.parametrize("soname", ["libmath.so.12", "libdeep.so.9"])
def test_what_is_mapped_is_not_opened_nor_what_it_needs(runner, soname):
    name = soname[len("lib") :].partition(".")[0]
    runner.put("libanother.so", f"int {name}(void) {{ return 5; }}", at="elsewhere", soname=soname)
    code = (OPEN.format("elsewhere/libanother.so"), needing())
    left = [f"site/{DEEP}"] if soname == "libmath.so.12" else NEEDED[1:]
    assert sorted(runner.opened(*code, "import runner")) == left
    assert runner.lines(*code, START) == ["runs on 6"]


def test_what_the_loader_finds_by_its_variable_is_not_opened(runner):
    runner.put(os.path.basename(DEEP), "int deep(void) { return 7; }", at="own")
    for folders in (["own"], ["nowhere", "own"]):
        runner.libraries = folders
        assert sorted(runner.opened(needing(), "import runner")) == NEEDED[1:]
        assert runner.lines(needing(), START) == ["runs on 8"]


def test_library_of_the_system_is_found_in_the_real_cache(runner):
    """libresolv comes with glibc, and a Python that has not opened a socket has not mapped it."""
    runner.put("nvidia/odd/lib/libresolv.so.2", "int odd;")
    runner.plugin("-lresolv")
    assert sorted(runner.opened(needing(), "import runner")) == NEEDED


def test_plugin_that_is_no_library_is_let_be(runner):
    (runner.folder / "site" / "runner" / "capi" / "libplugin.so").write_bytes(b"#!/bin/sh\n" * 100)
    assert runner.lines(needing(mode="strict"), "import runner", MAPPED, SAID) == [""]


# --- the built-in rules, with files that are called as the real ones -----------------------------


@pytest.mark.parametrize(("version", "is_taken"), [("9.1.0", True), ("9.3.0", False)])
def test_cudnn_of_the_variable_is_replaced_where_it_is_older(scene, version, is_taken):
    name = "libcudnn.so.9"
    scene.put(f"nvidia/cudnn/lib/{name}", GOOD)
    scene.put(f"{name[:-2]}.{version}", OLD, at="old", soname=name)
    scene.child.write("site/torch.py", "")
    for one in (("torch", "2.6.0"), ("nvidia-cudnn-cu12", "9.2.0.82")):
        scene.child.distribution(*one, at="site")
    lines = scene.lines("import cudaguard; cudaguard.install('strict')", "import torch", MAPPED)
    assert lines == [f"site/nvidia/cudnn/lib/{name}" if is_taken else ""]


GUARD = "import cudaguard; cudaguard.install('strict')"
ONNXRUNTIME = "import onnxruntime; onnxruntime.start()"


@pytest.mark.parametrize(
    ("dist", "driver", "is_opened"),
    [
        (("onnxruntime-gpu", "1.22.0"), True, True),
        (("onnxruntime-gpu", "1.22.0"), False, False),
        (("onnxruntime-gpu", "1.15.1"), True, False),
        (("onnxruntime", "1.22.0"), True, False),
    ],
)
def test_onnxruntime_finds_what_its_cuda_provider_needs(runner, dist, driver, is_opened):
    runner.child.distribution(*dist, at="site")
    site = runner.folder / "site"
    (site / "runner").rename(site / "onnxruntime")
    plugin = site / "onnxruntime" / "capi" / "libplugin.so"
    plugin.with_name("libonnxruntime_providers_cuda.so").symlink_to(plugin.name)
    prelude = HAS_DRIVER.format(files=("driver" if driver else "/nowhere",))
    unguarded = runner.lines(prelude, ONNXRUNTIME, MAPPED)
    assert "falls back" in unguarded[0]
    guarded = runner.lines(prelude, GUARD, ONNXRUNTIME, MAPPED)
    late = runner.lines(prelude, "import onnxruntime", GUARD, ONNXRUNTIME, MAPPED)
    if is_opened:
        assert (guarded[0], late[0]) == (RUNS, RUNS)
        assert set(NEEDED) <= set(guarded[-1].split())
    else:
        assert guarded == late == unguarded
    warned = runner.run(prelude, GUARD.replace("strict", "warn"), "import onnxruntime")
    assert warned.stderr == ""  # it may compute on the CPU alone


def test_parts_of_cudnn_that_ctranslate2_opens_by_their_names(runner):
    runner.put("nvidia/cudnn/lib/libcudnn_ops.so.9", "int part;")
    code = "import ctypes\nfinds = lambda: ctypes.CDLL(None).dlopen(b'libcudnn_ops.so.9', 2) != 0"
    runner.child.write("site/ctranslate2.py", code)
    asked = "import ctranslate2; print(ctranslate2.finds())"
    assert runner.lines(asked) == ["False"]
    for file, is_found in (("driver", "True"), ("/nowhere", "False")):
        assert runner.lines(HAS_DRIVER.format(files=(file,)), GUARD, asked) == [is_found]


@pytest.mark.parametrize("when", ["late", "mode"])
def test_told_where_it_is_not_repaired(scene, when):
    code = {"late": ("import taker", install()), "mode": (install(mode="warn"), "import taker")}[
        when
    ]
    assert "finding" in scene.run(*code, SAID).stdout


@pytest.mark.parametrize("tags", ["new", "old"])
def test_what_the_plugin_has_beside_it_is_not_opened_from_elsewhere(runner, tags):
    runner.put("runner/capi/libdeep.so.9", "int deep(void) { return 7; }")
    runner.plugin(f"-Wl,--{'enable' if tags == 'new' else 'disable'}-new-dtags,-rpath,$ORIGIN")
    assert runner.lines(needing(), START) == ["runs on 8"]


def test_variable_set_by_the_program_is_nothing_to_the_loader(runner):
    runner.put(os.path.basename(DEEP), "int deep(void) { return 7; }", at="own")
    late = "import os; os.environ['LD_LIBRARY_PATH'] = os.path.realpath('own')"
    assert runner.lines(late, needing(), START) == [RUNS]


def test_soname_of_the_installed_file_decides(scene):
    (scene.folder / "site" / GOOD_FILE).unlink()
    scene.put("nvidia/x/lib/libfoo.so.2.19", GOOD, soname=SONAME)
    code = (OPEN.format(f"old/{SONAME}"), install({"preload": "nvidia/x/lib/libfoo.so.2*"}))
    assert scene.lines(*code, "import taker", MAPPED) == [f"old/{SONAME}"]


def test_folder_of_the_interpreter_prompt(scene):
    """sys.path[0] is '' under `python -c` and at the prompt: modules are found there."""
    shutil.copytree(scene.folder / "site", scene.folder, dirs_exist_ok=True)
    scene.path = []
    assert scene.lines(install(), "import taker", ASK) == [GREEN]


# --- by soname -------------------------------------------------------------------------------

BY_NAME = (
    {"preload": "libmath.so.12"},
    {"preload": "libdeep.so.9"},
    {"preload": "libnobodyhas.so.1"},
)
OPENS = """
#include <dlfcn.h>
#include <stdio.h>
int work(void) {
    const char *names[] = {"libmath.so.12", "libdeep.so.9"}, *functions[] = {"math", "deep"};
    int sum = 0;
    for (int i = 0; i < 2; i++) {
        void *library = dlopen(names[i], RTLD_NOW);
        if (!library) { puts(dlerror()); fflush(stdout); return -1; }
        sum += ((int (*)(void)) dlsym(library, functions[i]))();
    }
    return sum;
}
"""


@pytest.fixture
def opener(runner):
    """The plug-in needs nothing, and opens both libraries by their names when it is used."""
    runner.put("runner/capi/libplugin.so", OPENS)
    return runner


def test_without_the_rule_what_is_opened_by_name_is_not_found(opener):
    refused, answer = opener.lines(needing(), START)  # which opens what the plug-in needs: nothing
    assert refused.startswith("libmath.so.12: cannot open shared object file")
    assert answer == "runs on -1"


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_what_is_opened_by_name_is_found_in_the_wheels(opener, mode):
    code = needing(*BY_NAME, mode=mode)
    assert opener.lines(code, "import runner", MAPPED) == [" ".join(NEEDED)]
    assert opener.lines(code, START) == [RUNS]
    assert sorted(opener.opened(code, "import runner")) == NEEDED


def test_name_that_the_loader_finds_is_left_to_it(opener):
    opener.put("libdeep.so.9", "int deep(void) { return 7; }", at="own")
    opener.libraries = ["own"]
    code = needing(*BY_NAME)
    assert f"site/{DEEP}" not in opener.opened(code, "import runner")
    assert opener.lines(code, START) == ["runs on 8"]
