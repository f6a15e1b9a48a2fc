"""Runs the same code with and without the guard, in interpreters of their own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from cudaguard.elf.reader import read_elf

FIND = """
import importlib.machinery, importlib.util, sys
class Finder:
    def __init__(self, find): self.find_spec = find
def spec_of(name, loader=None):
    path = name.replace(".", "/") + ".py"
    return importlib.util.spec_from_file_location(name, path, loader=loader)
"""
LIMIT = 60  # seconds; a hang must fail, a slow machine must not
ADDRESS = re.compile("0x[0-9a-f]+")
NOTE = "import ran; ran.names.append(__name__)\n"


class Ran(NamedTuple):
    """What a child process left."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Pair:
    """One folder of modules, and code that is run in it under the guard or without it.

    Modules written by `module` append their name to ``ran.names`` each time they are executed.
    """

    # Code that prints what was executed, in order; and the ids of the findings.
    NAMES = "import ran; print(*ran.names)"
    FINDINGS = "for found in cudaguard.status().findings: print(found.id)"

    def __init__(self, child) -> None:
        self.child = child
        child.write("ran.py", "names = []\n")

    def module(self, name: str, code: str = "", after: str = "") -> None:
        """Write a module: `code` runs before its execution is noted, `after` behind that."""
        text = textwrap.dedent(code) + NOTE + textwrap.dedent(after)
        self.child.write(name, text)

    def modules(self, *names: str) -> None:
        """Write modules that do nothing but note their execution."""
        for name in names:
            self.module(name)

    def bare(self, *code: str, **options) -> Ran:
        """Run pieces of code in an interpreter that has never heard of the guard."""
        return self._run(code, options)

    def guarded(
        self,
        *code: str,
        watch: tuple[str, ...] = ("target",),
        needs: tuple[str, ...] = ("prereq",),
        mode: str = "fix",
        proof: str | None = None,
        **options,
    ) -> Ran:
        """Run code behind `install()` with one rule.

        `proof` is code that fails where the guard did not stand in between; by default it
        wants every watched module noticed.
        """
        parts = [
            "import cudaguard, sys",
            f"RULE = cudaguard.Rule(id='LOCAL1', watch={watch!r}, needs={needs!r}, why='test')",
            f"cudaguard.install({mode!r}, rules=[RULE])",
            *code,
        ]
        if proof is None:
            proof = f"""
                arrived = {{e.name for e in cudaguard.status().events if e.kind == "import"}}
                assert arrived >= set({watch!r}), f"past the guard: {{arrived}}"
            """
        parts.append(proof)
        return self._run(parts, options)

    def same(self, *code: str, **options) -> list[str]:
        """Run code both ways; all it prints must be equal but for addresses. Returns the lines."""
        names = ("watch", "needs", "mode", "proof")
        # As many lines in front as under the guard: line numbers must not differ.
        plain = self.bare(
            "pass\n" * 2 + "pass", *code, **{k: v for k, v in options.items() if k not in names}
        )
        watched = self.guarded(*code, **options)
        assert watched.out == plain.out
        assert watched.err == plain.err
        return watched.lines

    def _run(self, parts, options) -> Ran:
        code = "\n".join(textwrap.dedent(part) for part in parts)
        done = self.child.python(code, **{"timeout": LIMIT, **options})
        return Ran(ADDRESS.sub("0x", done.stdout), ADDRESS.sub("0x", done.stderr))


@pytest.fixture
def pair(child) -> Pair:
    """Modules in a folder, run with and without the guard."""
    return Pair(child)


# `note()` appends the module's name to ran.names, as Pair.module() does for Python modules.
EXTENSION = r"""
#include <Python.h>
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
static PyObject *answer(PyObject *self, PyObject *args) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, 0}, {0}};
static int note(void) {
    PyObject *ran = PyImport_ImportModule("ran"), *names, *done;
    if (!ran || !(names = PyObject_GetAttrString(ran, "names"))) return -1;
    done = PyObject_CallMethod(names, "append", "s", TEXT(NAME));
    Py_XDECREF(done); Py_DECREF(names); Py_DECREF(ran);
    return done ? 0 : -1;
}
#ifdef FAILING
static int fail(void) { PyErr_SetString(PyExc_ImportError, "made to fail"); return -1; }
#define note fail
#endif
#ifdef MISSING_SYMBOL
int a_symbol_that_nobody_has(void);
int use_it(void) { return a_symbol_that_nobody_has(); }
#endif
#ifdef MULTI_PHASE
static int run(PyObject *module) { return note(); }
static PyModuleDef_Slot slots[] = {{Py_mod_exec, run}, {0}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, TEXT(NAME), 0, 0, methods, slots};
PyMODINIT_FUNC JOIN(PyInit_, NAME)(void) { return PyModuleDef_Init(&definition); }
#else
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, TEXT(NAME), 0, -1, methods};
PyMODINIT_FUNC JOIN(PyInit_, NAME)(void) {
    return note() < 0 ? NULL : PyModule_Create(&definition);
}
#endif
"""


ASKING = """
#include <Python.h>
int FUNCTION(void);
BODY
static PyObject *call(PyObject *self, PyObject *args) { return PyLong_FromLong(FUNCTION()); }
static PyMethodDef methods[] = {{"ask", call, METH_NOARGS, 0}, {0}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", 0, -1, methods};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModule_Create(&definition); }
"""


class Compiler:
    """Compiles small C sources; the outcome is kept for the whole test session."""

    def __init__(self, command: str, folder: Path) -> None:
        self.command = command
        self.folder = folder

    def library(self, name: str, source: str, *flags: str) -> Path:
        """Compile `source` to a shared library with the file name `name`."""
        # A library with a soname is not named by its path: the same is made in any folder.
        same = [_content(str(flag).rpartition("=")[2]) or flag for flag in flags]
        key = hashlib.sha256(repr((source, same)).encode()).hexdigest()[:16]
        built = self.folder / key / name
        if not built.exists():
            built.parent.mkdir(exist_ok=True)
            text = built.parent / "source.c"
            text.write_text(source)
            start = [self.command, "-shared", "-fPIC", "-O0", f"-I{sysconfig.get_path('include')}"]
            command = [*start, "-o", built, text, *flags]
            done = subprocess.run(command, timeout=120, capture_output=True, text=True, check=False)
            if "cannot find -lstdc++" in done.stderr:
                pytest.skip("there is no static libstdc++")
            assert done.returncode == 0, done.stderr
        return built

    def put(self, target: Path, source: str, *flags: str) -> Path:
        """Compile a library into a folder of a test's own; returns its file there."""
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(self.library(target.name, source, *flags), target))

    def extension(self, name: str, *defines: str) -> Path:
        """Compile an extension module."""
        flags = [f"-DNAME={name}", *(f"-D{define}" for define in defines)]
        return self.library(name + sysconfig.get_config_var("EXT_SUFFIX"), EXTENSION, *flags)

    def asking(self, name: str, function: str, *flags: str, body: str = "") -> Path:
        """Compile an extension whose `ask` returns what a function of a library returns."""
        source = ASKING.replace("NAME", name).replace("FUNCTION", function).replace("BODY", body)
        return self.library(name + sysconfig.get_config_var("EXT_SUFFIX"), source, *flags)


def _content(path: str) -> bytes:
    data = Path(path).read_bytes() if os.path.isfile(path) else b""
    return data if read_elf(path).soname or data[:4] != b"\x7fELF" else b""


@pytest.fixture(scope="session")
def compiler(tmp_path_factory) -> Compiler:
    """The C compiler of this machine."""
    if (command := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler (cc)")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("this Python came without its C headers")
    return Compiler(command, tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="session")
def cxx(tmp_path_factory) -> Compiler:
    """The C++ compiler of this machine; there may be no C++ runtime to link statically."""
    if (command := shutil.which("g++")) is None:
        pytest.skip("there is no C++ compiler")
    return Compiler(command, tmp_path_factory.mktemp("compiled"))


@pytest.fixture(params=["single", "multi"])
def phase(request) -> tuple[str, ...]:
    """Both ways in which an extension module comes to life."""
    return ("MULTI_PHASE",) if request.param == "multi" else ()


@pytest.fixture
def native(pair, compiler) -> Pair:
    """Pair with a method `extension` that puts a compiled module into the folder."""

    def extension(name: str, *defines: str, at: str = ".") -> Path:
        built = compiler.extension(name, *defines)
        folder = pair.child.folder / at
        folder.mkdir(exist_ok=True)
        return Path(shutil.copy(built, folder))

    pair.extension = extension
    return pair


HOST = '''
__name__ = "cudaguard.host"  # what it raises is no exception of the program's
import sys, ran
from cudaguard.errors import CudaGuardError
from cudaguard.hooks.extensions import ExtensionLoads
from cudaguard.hooks.loader import stand_before
from cudaguard.hooks.barrier import ImportCallbacks
from cudaguard.kernel import kernel

log = []

class Host:
    """Gives every watched module the same slots."""
    slots = ImportCallbacks()
    failures = []
    def callbacks_for(self, name):
        if isinstance(self.slots, Exception): raise self.slots
        return self.slots
    def after_mapping(self, library, extension, flags):
        pass
    def before_load(self, library, mode):
        pass
    def load_failed(self, error, library):
        pass
    def explained(self, spec, error):
        return None

    def before_mapping(self, spec):
        pass
    def broken(self, what, error):
        self.failures.append((what, repr(error)))

host = Host()
host.extensions, host.stand_before = ExtensionLoads(host), lambda spec: stand_before(host, spec)
kernel.watched = dict.fromkeys(("target", "second"))
kernel.core = host
sys.meta_path.insert(0, kernel)

def say(word, error=None):
    """A callback for the slots `before` and `after`."""
    def callback(spec, *module):
        log.append(word)
        if error is not None: raise error
    callback.__qualname__ = word
    return callback

def window(word, on_open=None, on_close=None):
    """A callback for the slot `around`."""
    def opener(spec):
        log.append("open " + word)
        if on_open is not None: raise on_open
        def close(error):
            log.append(f"close {word} {type(error).__name__}")
            if on_close is not None: raise on_close
        close.__qualname__ = "close " + word
        return close
    opener.__qualname__ = "open " + word
    return opener

class Names:
    def append(self, name): log.append("runs " + name)
ran.names = Names()
'''


@pytest.fixture
def slots(pair):
    """Runs code with the host above; whatever `log` holds at the end is printed line by line."""
    pair.child.write("host.py", HOST)
    pair.modules("target.py", "second.py")

    def run(code: str, **options) -> list[str]:
        show = "for line in [*log, *host.failures]: print(line)"
        return pair.bare("from host import *", code, show, **options).lines

    run.pair = pair
    return run
