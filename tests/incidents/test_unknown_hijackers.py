"""Packages that no built-in rule knows put a library into the global symbol scope.

Each library is a stand-in for a part of a real one (an old C++ runtime, an old zlib) and defines
names that other libraries define as well. Whoever needs such a name and is loaded later gets the
stranger's definition. The packages are built here, in the three ways that real ones have.

The guard tells of each of them, and a rule of the user's own cures it: the one that the message
spells out. Every green half has its red half: the same program without the guard, and with the
guard but without the rule.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from .marks import WITH_COMPILER

SOURCES = Path(__file__).parent / "hijackers"
COMPILER = shutil.which("g++")

pytestmark = WITH_COMPILER

# Package (and source of its library) -> the names it takes that a detector can watch.
HIJACKERS = {
    "oldrandom": (
        "_ZNSt13random_device7_M_initERKSs",
        "_ZNSt13random_device7_M_initERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    ),
    "oldzlib": ("deflate",),
    "oldexit": ("__cxa_thread_atexit",),
    "oldhash": (
        "_ZNSt8__detail21_Hash_node_value_baseIlE9_M_valptrEv",
        "_ZNKSt8__detail21_Hash_node_value_baseIlE9_M_valptrEv",
    ),
}

# How a package loads its library -> its `_ffi.py`.
WAYS = {name: (SOURCES / f"{name}.txt").read_text() for name in ("ctypes", "flags", "dlopen")}
THROUGH_PYTHON = ("ctypes", "flags")


class Outcome(NamedTuple):
    """How a program ends."""

    status: int
    output: str


class Victim(NamedTuple):
    """A program that uses a library of its own: how it should go, and how it goes."""

    hijacker: str
    module: str
    use: str
    right: str
    wrong: Outcome
    flags: tuple[str, ...] = ()


INPUT = "the program's own input"
DRAW_CLEAN = f"""
    import os
    with open("input", "w") as file:
        file.write({INPUT!r})
    os.dup2(os.open("input", os.O_RDONLY), 0)
    drawn = draws.from_clean().to_bytes(4, sys.byteorder)
    print("drawn from", "the input" if drawn == {INPUT!r}[:4].encode() else "the system")
    print("bytes of input used:", os.lseek(0, 0, os.SEEK_CUR))
"""
DRAW_USED = "draws.from_used(); print('drawn')"
COMPRESS = """
    text = b"the same over and over, " * 100
    print("zlib", "1.2.3" if zlib.ZLIB_RUNTIME_VERSION == "1.2.3" else "of this system")
    try:
        print(zlib.decompress(zlib.compress(text)) == text)
    except zlib.error as error:
        print(error)
"""
FROM_SYSTEM = "drawn from the system\nbytes of input used: 0\n"
FROM_INPUT = Outcome(0, "drawn from the input\nbytes of input used: 4\n")
CRASH = Outcome(-signal.SIGSEGV, "")
OLD_STRINGS = ("-D_GLIBCXX_USE_CXX11_ABI=0",)
NEW_STRINGS = ("-D_GLIBCXX_USE_CXX11_ABI=1",)

FAILS = "zlib 1.2.3\nError -2 while compressing data: inconsistent stream state\n"
LATE, SUM = "log closed\ncache written to a closed log\n", "print('sum', sums.total() == 6000023)"
VICTIMS = {
    "reads-stdin": Victim("oldrandom", "draws", DRAW_CLEAN, FROM_SYSTEM, FROM_INPUT, NEW_STRINGS),
    "crash": Victim("oldrandom", "draws", DRAW_USED, "drawn\n", CRASH, OLD_STRINGS),
    "zlib": Victim("oldzlib", "zlib", COMPRESS, "zlib of this system\nTrue\n", Outcome(0, FAILS)),
    "exit-order": Victim(
        "oldexit", "leaves", "leaves.work()", "cache saved\nlog closed\n", Outcome(0, LATE)
    ),
    "wrong-sum": Victim("oldhash", "sums", SUM, "sum True\n", Outcome(0, "sum False\n")),
}


class Hijacker(NamedTuple):
    """A built package that puts its library into the global symbol scope."""

    package: str
    way: str
    folder: Path  # to be put on the path
    library: Path
    where: str  # `file:line` of the Python code by which the library comes
    names: tuple[str, ...]  # what it takes from others, as far as a detector can watch

    @property
    def native(self) -> Path:
        """The package's extension, if it has one."""
        return self.library.with_name("_native.so")

    @property
    def actions(self) -> list[dict]:
        """What a rule does against it: what comes through Python stays local from the start."""
        library = f"{self.library.name.partition('.')[0]}.so*"
        return [{"load_local": library}]

    @property
    def rule(self) -> str:
        """Code that makes the rule with which a user keeps the library out."""
        return (
            f"cudaguard.Rule(id='LOCAL001', watch=({self.package!r},), "
            f"actions={self.actions!r}, why='its library serves everybody')"
        )


class Workshop:
    """Builds packages and victims, each once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, target: Path, source: str, *flags: object) -> Path:
        """Compile one source without optimization, unless that is done."""
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            always = ("-std=c++17", "-shared", "-fPIC", "-O0", "-Wl,--as-needed")
            soname = f"-Wl,-soname,{target.name}"
            include = f"-I{sysconfig.get_path('include')}"
            command = [COMPILER, *always, soname, include, "-o", target, SOURCES / source, *flags]
            subprocess.run([str(part) for part in command], check=True, timeout=120)
        return target

    def hijacker(self, package: str, way: str, *flags: str) -> Hijacker:
        """Build a package that loads its library, compiled with `flags`, in the way named."""
        inside = self.folder / "-".join([way, *flags]).replace(",", "-") / package
        library = self.build(inside / f"lib{package}.so.1", f"{package}.cpp", "-pthread", *flags)
        if way != "ctypes":
            link = [f'-DOPEN="{library.name}"', "-ldl"] if way == "dlopen" else [library]
            self.build(inside / "_native.so", "native.cpp", "-Wl,-rpath,$ORIGIN", *link)
        text = WAYS[way].format(library=library.name)
        (line,) = [n for n, t in enumerate(text.splitlines(), 1) if t.endswith("# loads it")]
        ffi = inside / "_ffi.py"
        ffi.write_text(text, encoding="utf-8")
        (inside / "__init__.py").write_text("from ._ffi import api_version\n", encoding="utf-8")
        names = HIJACKERS[package]
        return Hijacker(package, way, inside.parent, library, f"{ffi}:{line}", names)

    def victim(self, name: str) -> Path:
        """Build what the victim uses; returns the folder to be put on the path."""
        victim = VICTIMS[name]
        folder = self.folder / "victims" / name
        if (SOURCES / f"{victim.module}.cpp").exists():  # not if it comes with Python
            self.build(folder / f"{victim.module}.so", f"{victim.module}.cpp", *victim.flags)
        return folder


class Case:
    """One victim and one package, and programs that use both in fresh interpreters."""

    def __init__(self, child, workshop: Workshop, name: str, way: str, *flags: str) -> None:
        self.child = child
        self.victim = VICTIMS[name]
        self.hijacker = workshop.hijacker(self.victim.hijacker, way, *flags)
        self.path = os.pathsep.join([str(self.hijacker.folder), str(workshop.victim(name))])
        self.right = Outcome(0, self.victim.right)
        self.wrong = self.victim.wrong

    @property
    def load(self) -> str:
        """Code that imports the package, before the victim's, and finds it in working order."""
        package = self.hijacker.package
        return (
            f"import sys; assert {self.victim.module!r} not in sys.modules\n"
            f"import {package}; assert {package}.api_version() == 7"
        )

    @property
    def use(self) -> str:
        """Code that imports the victim's module and uses it."""
        return f"import sys, {self.victim.module}\n{textwrap.dedent(self.victim.use)}"

    @property
    def findings(self) -> list[dict]:
        """What a program that ended with `RECORD` knew of."""
        return json.loads((self.child.folder / "findings.json").read_text(encoding="utf-8"))

    @property
    def with_rule(self) -> str:
        """Code that installs the guard with the user's rule."""
        return f"import cudaguard; cudaguard.install('fix', rules=[{self.hijacker.rule}])"

    def run(self, *code: str, start: tuple[object, ...] = (), **variables: str):
        """Run pieces of code; `start` stands on the command line in front of ``-c``."""
        program = "\n".join(code)
        env = {"PYTHONPATH": self.path, **variables}
        return self.child.command(
            sys.executable, *start, "-c", program, env=env, timeout=60, check=False
        )

    def outcome(self, *code: str, **options) -> Outcome:
        """Run pieces of code; returns how that ended."""
        done = self.run(*code, **options)
        return Outcome(done.returncode, done.stdout)


# The guard looks once ctypes is there, which numpy and most of what has native parts import.
GUARD = "import ctypes, cudaguard; cudaguard.install()"
RECORD = """
import atexit
def record():
    import cudaguard, json
    with open("findings.json", "w") as file:
        json.dump([finding.to_dict() for finding in cudaguard.status().findings], file)
atexit.register(record)
"""


class Told(NamedTuple):
    """What a program under the guard left."""

    status: int
    output: str
    errors: str
    findings: list[dict]
    lines: dict[str, str]  # comment behind a line of the program -> `file:line` of it

    @property
    def warnings(self) -> list[str]:
        """Where something was told of."""
        warning = ": SymbolScopeWarning: [CG812] "
        return [line.split(warning)[0] for line in self.errors.splitlines() if warning in line]


@pytest.fixture
def told(child):
    """Runs a program from a file, with a package on the path and with `RECORD` in front."""

    def told(hijacker: Hijacker, *code: str, start=(), **variables: str) -> Told:
        text = "\n".join([RECORD, *map(textwrap.dedent, code)])
        program = child.write("program.py", text)
        comments = enumerate((line.rpartition("  # ")[2] for line in text.splitlines()), 1)
        done = child.command(
            *(sys.executable, *start, program),
            env={"PYTHONPATH": str(hijacker.folder), **variables},
            timeout=60,
            check=False,
        )
        found = json.loads((child.folder / "findings.json").read_text(encoding="utf-8"))
        lines = {comment: f"{program}:{number}" for number, comment in comments}
        return Told(done.returncode, done.stdout, done.stderr, found, lines)

    return told


@pytest.fixture(scope="module")
def workshop(tmp_path_factory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("hijackers"))


@pytest.fixture
def case(child, workshop):
    """Returns the `Case` of a victim's name, a way of loading and flags for the library."""

    def case(name: str, way: str, *flags: str) -> Case:
        return Case(child, workshop, name, way, *flags)

    return case


def zlib_is_shared() -> bool:
    import zlib

    file = getattr(zlib, "__file__", None)
    return file is not None and b"libz.so" in Path(file).read_bytes()


OWN_ZLIB = pytest.mark.skipif(
    not zlib_is_shared(), reason="this Python has a zlib of its own, which nobody can take"
)
every_victim = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=OWN_ZLIB if n == "zlib" else ()) for n in VICTIMS]
)
every_way = pytest.mark.parametrize("way", WAYS)
each_way_through_python = pytest.mark.parametrize("way", THROUGH_PYTHON)

# Prints the file that serves each name to whoever is loaded next.
OWNERS = """
import ctypes, os
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]
def owner(name):
    everything, info = ctypes.CDLL(None), Info()
    try:
        function = everything[name]
    except AttributeError:
        return None
    everything.dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info))
    return os.path.basename(info.file.decode())
"""
REPAIRED = """
import cudaguard
status = cudaguard.status()
assert status.findings == (), status.findings
from cudaguard.core.lifecycle import activation
repairs = activation.core.reporter.repairs
assert [done.rule for done in repairs] == ["LOCAL001"], repairs
"""


# Without the guard.


@every_way
@every_victim
def test_victim_that_comes_later_is_hit(case, name, way):
    case = case(name, way)
    assert case.outcome(case.load, case.use) == case.wrong


@every_victim
def test_victim_that_comes_alone_or_first_is_well(case, name):
    """What is bound stays bound; import order helps those that can be imported first."""
    case = case(name, "ctypes")
    hijack = f"import {case.hijacker.package}"
    for first in ("", f"import {case.victim.module}\n{hijack}"):
        assert case.outcome(first, case.use) == case.right


# With the guard and without a rule: the victim is bound to its own symbols, before it is mapped.


@every_way
@every_victim
def test_victim_is_bound_to_its_own(case, name, way):
    case = case(name, way)
    done = case.run(GUARD, RECORD, case.load, case.use)
    assert (done.returncode, done.stdout, done.stderr) == (*case.right, "")
    assert case.findings == []


STRICT = "import ctypes, cudaguard; cudaguard.install('strict')"
WARN = "import ctypes, cudaguard; cudaguard.install('warn')"
CALL = "ctypes.CDLL({!r}, ctypes.RTLD_GLOBAL)"


@each_way_through_python
@every_victim
def test_rule_in_the_message_cures(case, name, way):
    """As a user follows it: copy the rule from the terminal, set the variable, start again."""
    case = case(name, way)
    done = case.run(WARN, RECORD, case.load, "record()", case.use)
    assert Outcome(done.returncode, done.stdout) == case.wrong
    (printed,) = (part for part in done.stderr.split("  fix: ") if "[[rules]]" in part)
    lines = [line for line in printed.splitlines()[1:] if line.startswith("      ")]
    rule = case.child.write("cudaguard.toml", "\n".join(lines))
    variables = {"CUDAGUARD_CONFIG": rule.name}
    done = case.run(GUARD, case.load, case.use, REPAIRED, **variables)
    assert (done.returncode, done.stdout, done.stderr) == (*case.right, "")
    # And where nobody imports ctypes or calls install().
    done = case.run(case.load, case.use, CUDAGUARD="fix", **variables)
    assert (done.returncode, done.stdout, done.stderr) == (*case.right, "")


@every_way
def test_finding_says_who_what_and_where(case, workshop, told, way):
    hijacker = workshop.hijacker("oldzlib", way)
    done = told(hijacker, f"{WARN}\nimport oldzlib  # user\nimport zlib  # victim")
    assert (done.status, done.output, done.warnings) == (0, "", [done.lines["victim"]])
    (finding,) = done.findings
    library = hijacker.library.name
    assert finding["what"] == f"zlib uses zlib of {library} (oldzlib) instead of its own."
    how = {
        "ctypes": f"loads {hijacker.library} with RTLD_GLOBAL, by ctypes",
        "flags": f"imports {hijacker.native} with RTLD_GLOBAL set by sys.setdlopenflags at "
        f"{hijacker.where.rpartition(':')[0]}:5",
        "dlopen": f"imports {hijacker.native} which makes itself global",
    }[way]
    loaded, imported, taken, hint = finding["evidence"]
    assert loaded == f"oldzlib._ffi ({hijacker.where}) {how}"
    assert imported == f"imported at {done.lines['user']}"
    assert f" resolve to {hijacker.library}, not " in taken
    assert hint.endswith("mode 'fix' binds it to its own symbols")
    assert "HDF5 can fail or return None" in finding["consequence"]


# Silence.


def silent(done: Told) -> bool:
    return (done.status, done.errors, done.findings) == (0, "", [])


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("libstdc++.so.6", "_ZSt11_Hash_bytesPKvmm"),
        ("libgomp.so.1", "GOMP_parallel"),
        ("libz.so.1", "inflateReset2"),
    ],
)
def test_libraries_that_own_the_names_are_let_be(workshop, told, library, name):
    try:
        ctypes.CDLL(library)
    except OSError:
        pytest.skip(f"this system has no {library}")
    hijacker = workshop.hijacker("oldzlib", "ctypes")
    look = f"print(owner({name!r}))"
    done = told(hijacker, STRICT, OWNERS, CALL.format(library), look)
    assert silent(done)
    assert done.output.startswith(library.partition(".so")[0])


@OWN_ZLIB
@pytest.mark.parametrize(("name", "findings"), [("libmpi.so.40", 0), ("libother.so.40", 1)])
def test_library_that_is_global_on_purpose_is_let_be(workshop, told, name, findings):
    hijacker = workshop.hijacker("oldzlib", "ctypes")
    library = shutil.copy(hijacker.library, hijacker.library.with_name(name))
    done = told(hijacker, WARN, CALL.format(str(library)), "import zlib")
    assert (done.status, done.output) == (0, "")
    assert (len(done.findings), len(done.warnings)) == (findings, findings)


@every_way
def test_library_that_the_user_has_preloaded_is_let_be(workshop, told, way):
    hijacker = workshop.hijacker("oldzlib", way)
    look = f"import oldzlib{OWNERS}print(owner('deflate'))"
    done = told(hijacker, STRICT, look, LD_PRELOAD=str(hijacker.library))
    assert silent(done)
    assert done.output == f"{hijacker.library.name}\n"


@OWN_ZLIB
def test_library_of_no_package_is_let_be_only_if_it_came_before_the_guard(workshop, told):
    """How the program was started is its own affair: there is no import that could change it."""
    hijacker = workshop.hijacker("oldzlib", "ctypes")
    library = shutil.copy(hijacker.library, workshop.folder / "libelsewhere.so.1")
    call, look = CALL.format(str(library)), "import zlib; print(zlib.ZLIB_RUNTIME_VERSION)"
    done = told(hijacker, "import ctypes", call, STRICT, look)
    assert silent(done)
    assert done.output == "1.2.3\n"
    done = told(hijacker, STRICT, call, look)
    assert silent(done)
    assert done.output != "1.2.3\n"


# With the guard and a rule of the user's own.


@each_way_through_python
def test_rule_does_not_reach_what_the_library_is_first_to_map(case, way):
    """The other limit: the dependencies of a library search that library, local or not.

    Here it is the one to bring the C++ runtime into the process, and the runtime's own call of
    the function goes astray. No name moves in the global scope.
    """
    case = case("crash", way, "-Wl,--no-as-needed")
    look = f"print(*map(owner, {case.hijacker.names!r}), flush=True)\n"
    done = case.run(case.with_rule, case.load, OWNERS, look, case.use)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "None None\n")
    runtime = "import ctypes; ctypes.CDLL('libstdc++.so.6')"
    assert case.outcome(runtime, case.with_rule, case.load, case.use) == case.right
    assert case.outcome(runtime, case.load, case.use) == case.wrong
