"""An extension that was linked with -static-libstdc++ and shows that C++ runtime to everyone.

The runtime's ``std::...::id`` objects are one per process by the loader's rules, local scope or
not; the rest of the runtime is there twice. Of two extensions, one with a runtime of its own and
one that shares libstdc++.so.6, the second formats numbers to nothing.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

COMPILER = shutil.which("g++")

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="shared libraries are made and bound in another way elsewhere",
    ),
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler"),
    pytest.mark.skipif(
        not Path(sysconfig.get_path("include"), "Python.h").exists(),
        reason="this Python came without its C headers",
    ),
]

SOURCE = """
#include <Python.h>
#include <sstream>
#ifdef OWN_FACET
#include <locale>
std::locale::id *own = &std::num_put<char, char *>::id;
#endif
static PyObject *text(PyObject *, PyObject *) {
    std::ostringstream out;
    out << "all " << 42 << " of them";
    return PyUnicode_FromString(out.str().c_str());
}
static PyMethodDef methods[] = {{"text", text, METH_NOARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "numbers", nullptr, -1, methods};
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
PyMODINIT_FUNC JOIN(PyInit_, NAME)() { return PyModule_Create(&definition); }
"""
STATIC = "-static-libstdc++"
# Module -> how it is linked. `shared` stands for any other C++ extension, torch's for one.
MODULES = {
    "shared": (),
    "exporting": (STATIC,),
    "exporting_all": (STATIC, "-static-libgcc"),
    "own_facet": ("-DOWN_FACET",),  # exports such an object that is its own
    "hiding": (STATIC, "-Wl,--exclude-libs,ALL"),
}
EXPORTING, QUIET = ("exporting", "exporting_all"), ("shared", "own_facet", "hiding")
RIGHT, WRONG = "all 42 of them", "all "


@pytest.fixture(scope="module")
def modules(tmp_path_factory) -> Path:
    """A folder with the compiled modules."""
    folder = tmp_path_factory.mktemp("modules")
    source = folder / "numbers.cpp"
    source.write_text(SOURCE, encoding="utf-8")
    for name, flags in MODULES.items():
        command = [COMPILER, "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}"]
        command += [f"-DNAME={name}", "-o", folder / f"{name}.so", source, *flags]
        subprocess.run([str(part) for part in command], check=True, timeout=120)
    if not is_static(folder / "exporting.so"):
        pytest.skip("this compiler has no static libstdc++")
    return folder


def is_static(library: Path) -> bool:
    return b"libstdc++.so.6" not in library.read_bytes()


REPORT = """
import cudaguard, json
print(json.dumps([finding.to_dict() for finding in cudaguard.status().findings]))
"""


@pytest.fixture
def run(child, modules):
    """Runs a program from a file; returns the process and the program's path."""

    def run(code, *start, check=True, **variables):
        program = child.write("program.py", code)
        env = {"PYTHONPATH": str(modules), **variables}
        return child.command(sys.executable, *start, program, env=env, check=check), program

    return run


def texts(*names: str) -> str:
    return "".join(f"import {name}\nprint({name}.text())\n" for name in names)


def guarded(mode: str, *names: str) -> str:
    return f"import cudaguard; cudaguard.install({mode!r})\n{texts(*names)}{REPORT}"


# Without the guard.


@pytest.mark.parametrize("name", MODULES)
def test_each_module_alone_is_well(run, name):
    done, _ = run(texts(name))
    assert done.stdout.splitlines() == [RIGHT]


@pytest.mark.parametrize("names", [("shared", name) for name in EXPORTING])
def test_whoever_comes_second_writes_no_numbers(run, names):
    for order in (names, names[::-1]):
        done, _ = run(texts(*order))
        first, second = done.stdout.split("\n")[:2]
        assert (first, second) == (RIGHT, WRONG)


def test_hidden_names_cure_it(run):
    for order in (("shared", "hiding"), ("hiding", "shared")):
        done, _ = run(texts(*order))
        assert done.stdout.splitlines() == [RIGHT, RIGHT]


# With it: it cannot be repaired at run time, and is told of.


@pytest.mark.parametrize("mode", ["warn", "fix"])
@pytest.mark.parametrize("name", EXPORTING)
def test_it_is_told_of(run, modules, name, mode):
    done, program = run(guarded(mode, name))
    text, findings = done.stdout.splitlines()
    assert text == RIGHT
    (finding,) = json.loads(findings)
    assert (finding["id"], finding["severity"], finding["rule"]) == ("CG813", "warning", None)
    assert (
        finding["what"] == f"{name} exposes its own C++ runtime to every library loaded after it."
    )
    line, file = finding["evidence"]
    assert file.startswith(f"{modules / name}.so does not need libstdc++.so.6")
    assert line == f"imported at {program}:2"
    assert "-Wl,--exclude-libs,ALL" in finding["remedy"]
    assert done.stderr.count("[CG813]") == 1
    assert done.stderr.startswith(f"{program}:2: SymbolScopeWarning: [CG813] {finding['what']}")


def test_names_in_the_evidence_are_those_of_the_runtime(run, modules):
    done, _ = run(guarded("observe", "exporting"))
    (finding,) = json.loads(done.stdout.splitlines()[-1])
    count, _, name = finding["evidence"][1].partition("exports ")[2].partition(" objects")
    name = name.split(": ")[1].split()[0]
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("there is no nm to compare with")
    lines = subprocess.run(
        [nm, "-D", "--defined-only", str(modules / "exporting.so")],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout.splitlines()  # fmt: skip
    unique = [line.split()[2] for line in lines if line.split()[1] == "u"]
    ids = [known for known in unique if known.startswith("_ZNSt") and known.endswith("2idE")]
    assert (int(count), name in ids) == (len(ids), True)
    assert len(ids) > 20


@pytest.mark.parametrize("name", QUIET)
def test_others_are_let_be(run, name):
    """Hidden or shared: there is one runtime for everyone, or nothing that anyone could share."""
    done, _ = run(guarded("strict", name))
    assert (done.stdout, done.stderr) == (f"{RIGHT}\n[]\n", "")


def test_each_module_is_told_of_once(run):
    again = "import importlib, sys\ndel sys.modules['exporting']\nimportlib.import_module"
    code = f"{again}('exporting')\n"
    done, _ = run(guarded("fix", "exporting").replace(REPORT, f"{code}{REPORT}"))
    assert done.stderr.count("[CG813]") == 1
    both, _ = run(guarded("fix", *EXPORTING))
    assert both.stderr.count("[CG813]") == 2


def test_package_that_imports_it_is_named_by_its_line(run, child):
    child.write("package/__init__.py", "\n\nfrom exporting import text\n")
    done, _ = run("import cudaguard; cudaguard.install()\nimport package\n")
    assert done.stderr.startswith(f"{child.folder}/package/__init__.py:3: SymbolScopeWarning")
