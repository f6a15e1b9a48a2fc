"""Packages that no built-in rule knows put a library into the global symbol scope.

Each library is a stand-in for a part of a real one (an old C++ runtime, an old zlib) and defines
names that other libraries define as well. Whoever needs such a name and is loaded later gets the
stranger's definition. The packages are built here, in the three ways that real ones have.

A rule of the user's own cures the two ways that go through Python. Every green half has its red
half: the same program without the guard, and with the guard but without the rule.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCES = Path(__file__).parent / "hijackers"
COMPILER = shutil.which("g++")

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="the libraries imitate old ones for x86-64 Linux",
    ),
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler"),
    pytest.mark.skipif(
        not Path(sysconfig.get_path("include"), "Python.h").exists(),
        reason="this Python came without its C headers",
    ),
]

# Package (and source of its library) -> the names it takes that a detector can watch.
HIJACKERS = {
    "oldrandom": ("_ZNSt13random_device7_M_initERKSs",),
    "oldzlib": ("deflate",),
    "oldexit": ("__cxa_thread_atexit",),
    "oldhash": (
        "_ZNSt8__detail21_Hash_node_value_baseIlE9_M_valptrEv",
        "_ZNKSt8__detail21_Hash_node_value_baseIlE9_M_valptrEv",
    ),
}

# How a package loads its library -> its `_ffi.py`.
WAYS = {
    "ctypes": """
        import ctypes
        import os

        path = os.path.join(os.path.dirname(__file__), "{library}")
        library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)  # loads it
        api_version = library.api_version
    """,
    "flags": """
        import os
        import sys

        saved = sys.getdlopenflags()
        sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
        try:
            from ._native import api_version  # loads it
        finally:
            sys.setdlopenflags(saved)
    """,
    "dlopen": """
        from ._native import api_version  # loads it
    """,
}
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

VICTIMS = {
    "reads-stdin": Victim(
        "oldrandom", "draws", DRAW_CLEAN, FROM_SYSTEM, FROM_INPUT, flags=OLD_STRINGS
    ),
    "reads-stdin-new-strings": Victim(
        "oldrandom", "draws", DRAW_CLEAN, FROM_SYSTEM, FROM_INPUT, flags=NEW_STRINGS
    ),
    "crash": Victim("oldrandom", "draws", DRAW_USED, "drawn\n", CRASH, flags=OLD_STRINGS),
    "crash-new-strings": Victim(
        "oldrandom", "draws", DRAW_USED, "drawn\n", CRASH, flags=NEW_STRINGS
    ),
    "zlib": Victim(
        "oldzlib",
        "zlib",
        COMPRESS,
        "zlib of this system\nTrue\n",
        Outcome(0, "zlib 1.2.3\nError -2 while compressing data: inconsistent stream state\n"),
    ),
    "exit-order": Victim(
        "oldexit",
        "leaves",
        "leaves.work()",
        "cache saved\nlog closed\n",
        Outcome(0, "log closed\ncache written to a closed log\n"),
    ),
    "wrong-sum": Victim(
        "oldhash",
        "sums",
        "print('sum', 'right' if sums.total() == 6000023 else 'wrong')",
        "sum right\n",
        Outcome(0, "sum wrong\n"),
    ),
}


class Hijacker(NamedTuple):
    """A built package that puts its library into the global symbol scope."""

    package: str
    folder: Path  # to be put on the path
    library: Path
    where: str  # `file:line` of the Python code by which the library comes
    names: tuple[str, ...]  # what it takes from others, as far as a detector can watch

    @property
    def action(self) -> str:
        return f"local_scope:{self.library.name.partition('.')[0]}.so*"

    @property
    def rule(self) -> str:
        """Code that makes the rule with which a user keeps the library out."""
        return (
            f"cudaguard.Rule(id='LOCAL001', watch=({self.package!r},), "
            f"actions=({self.action!r},), why='its library serves everybody')"
        )

    @property
    def rules_file(self) -> str:
        """The same rule in a configuration file."""
        return f"""
            [[rules]]
            id = "LOCAL001"
            watch = ["{self.package}"]
            actions = ["{self.action}"]
            why = "its library serves everybody"
        """


class Workshop:
    """Builds packages and victims, each once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, target: Path, source: str, *flags: object) -> Path:
        """Compile one source without optimisation, unless that is done."""
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
        text = textwrap.dedent(WAYS[way]).lstrip().format(library=library.name)
        (line,) = [n for n, t in enumerate(text.splitlines(), 1) if t.endswith("# loads it")]
        ffi = inside / "_ffi.py"
        ffi.write_text(text, encoding="utf-8")
        (inside / "__init__.py").write_text("from ._ffi import api_version\n", encoding="utf-8")
        return Hijacker(package, inside.parent, library, f"{ffi}:{line}", HIJACKERS[package])

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
repairs = [event.name for event in status.events if event.kind == "repair"]
assert [name.split()[0] for name in repairs] == ["LOCAL001"], repairs
"""


# Without the guard.


@every_victim
def test_victim_alone_is_well(case, name):
    case = case(name, "ctypes")
    assert case.outcome(case.use) == case.right


@every_way
@every_victim
def test_victim_that_comes_later_is_hit(case, name, way):
    case = case(name, way)
    assert case.outcome(case.load, case.use) == case.wrong


@every_victim
def test_victim_that_comes_first_is_well(case, name):
    """What is bound stays bound; import order helps those that can be imported first."""
    case = case(name, "ctypes")
    hijack = f"import {case.hijacker.package}"
    assert case.outcome(f"import {case.victim.module}", hijack, case.use) == case.right


@every_way
@pytest.mark.parametrize("package", HIJACKERS)
def test_package_takes_the_names(child, workshop, package, way):
    hijacker = workshop.hijacker(package, way)
    look = f"print(*map(owner, {hijacker.names!r}))"
    done = child.python(
        f"{OWNERS}{look}\nimport {package}\n{look}", env={"PYTHONPATH": str(hijacker.folder)}
    )
    before, after = (line.split() for line in done.stdout.splitlines())
    assert hijacker.library.name not in before
    assert set(after) == {hijacker.library.name}


# With the guard and a rule of the user's own.


@each_way_through_python
@every_victim
def test_rule_of_the_user_cures(case, name, way):
    case = case(name, way)
    done = case.run(case.with_rule, case.load, case.use, REPAIRED)
    assert (done.returncode, done.stdout, done.stderr) == (*case.right, "")


@each_way_through_python
@every_victim
def test_without_the_rule_the_guard_knows_nothing_of_it(case, name, way):
    case = case(name, way)
    guard = "import cudaguard; cudaguard.install('fix')"
    assert case.outcome(guard, case.load, case.use) == case.wrong


@each_way_through_python
@pytest.mark.parametrize("package", HIJACKERS)
def test_under_the_rule_the_package_takes_nothing(child, workshop, package, way):
    hijacker = workshop.hijacker(package, way)
    guard = f"import cudaguard; cudaguard.install('fix', rules=[{hijacker.rule}])"
    look = f"print(*map(owner, {hijacker.names!r}))"
    done = child.python(
        f"{guard}\n{OWNERS}{look}\nimport {package}\n{look}",
        env={"PYTHONPATH": str(hijacker.folder)},
    )
    assert hijacker.library.name not in done.stdout


def test_rule_does_not_reach_a_load_by_c_code(case):
    """The limit: there is no Python call between the package and the loader."""
    case = case("wrong-sum", "dlopen")
    assert case.outcome(case.with_rule, case.load, case.use) == case.wrong


@each_way_through_python
def test_rule_does_not_reach_what_the_library_is_first_to_map(case, way):
    """The other limit: the dependencies of a library search that library, local or not.

    Here it is the one to bring the C++ runtime into the process, and the runtime's own call of
    the function goes astray. No name moves in the global scope.
    """
    case = case("crash", way, "-Wl,--no-as-needed")
    look = f"print(*map(owner, {case.hijacker.names!r}), flush=True)\n"
    done = case.run(case.with_rule, case.load, OWNERS, look, case.use)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "None\n")
    runtime = "import ctypes; ctypes.CDLL('libstdc++.so.6')"
    assert case.outcome(runtime, case.with_rule, case.load, case.use) == case.right
    assert case.outcome(runtime, case.load, case.use) == case.wrong


# The other doors, each with the program that `test_victim_that_comes_later_is_hit` sees fail.


@each_way_through_python
def test_environment_variables(case, way):
    case = case("wrong-sum", way)
    rules = case.child.write("rules.toml", case.hijacker.rules_file)
    done = case.run(case.load, case.use, CUDAGUARD="fix", CUDAGUARD_CONFIG=str(rules))
    assert (done.returncode, done.stdout, done.stderr) == (*case.right, "")
    off = case.outcome(case.load, case.use, CUDAGUARD="off", CUDAGUARD_CONFIG=str(rules))
    assert off == case.wrong


@each_way_through_python
def test_guard_block(case, way):
    case = case("crash", way)
    load = textwrap.indent(case.load, "    ")
    block = f"import cudaguard\nwith cudaguard.guard(rules=[{case.hijacker.rule}]):\n{load}"
    done = case.run(block, case.use)
    assert (done.returncode, done.stdout, done.stderr) == (*case.right, "")


@each_way_through_python
def test_launcher(case, way):
    case = case("exit-order", way)
    rules = case.child.write("rules.toml", case.hijacker.rules_file)
    start = ("-m", "cudaguard", "run", "--mode", "fix")
    done = case.run(case.load, case.use, start=start, CUDAGUARD_CONFIG=str(rules))
    assert (done.returncode, done.stdout, done.stderr) == (*case.right, "")
    assert case.outcome(case.load, case.use, start=start) == case.wrong
