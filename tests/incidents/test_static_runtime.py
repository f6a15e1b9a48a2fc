"""An extension that was linked with -static-libstdc++ and shows that C++ runtime to everyone.

The runtime's ``std::...::id`` objects are one per process by the loader's rules, local scope or
not; the rest of the runtime is there twice. Of two extensions, one with a runtime of its own and
one that shares libstdc++.so.6, the second formats numbers to nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import pytest

from cudaguard.elf.reader import SYMBOL_KIND, ElfFile

from .marks import WITH_COMPILER

if TYPE_CHECKING:
    from pathlib import Path

COMPILER = shutil.which("g++")

pytestmark = WITH_COMPILER

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


def compiled(folder: Path, name: str, source: str, *flags: str) -> Path:
    """Compile a module or library in a folder; returns its file."""
    (folder / f"{name}.cpp").write_text(source, encoding="utf-8")
    command = [COMPILER, "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}"]
    command += [f"-DNAME={name}", "-o", f"{name}.so", f"{name}.cpp", *flags]
    subprocess.run(command, check=True, timeout=120, cwd=folder)
    return folder / f"{name}.so"


@pytest.fixture(scope="module")
def modules(tmp_path_factory) -> Path:
    """A folder with the compiled modules."""
    folder = tmp_path_factory.mktemp("modules")
    for name, flags in MODULES.items():
        compiled(folder, name, SOURCE, *flags)
    if b"libstdc++.so.6" in (folder / "exporting.so").read_bytes():
        pytest.skip("this compiler has no static libstdc++")
    return folder


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


# With it: each runtime is its owner's.

CHANGES = """
import sys, cudaguard
print(*[one for one in cudaguard.status().changes if "CG813" in one], cudaguard.status().findings)
module = sys.modules["exporting"]
print(module.__file__ == module.__spec__.origin, module.__file__)
"""


@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize("names", [("shared", name) for name in EXPORTING])
def test_everybody_writes_numbers(run, modules, names, mode):
    for order in (names, names[::-1], (names[1], *names, names[1])):
        install = f"import cudaguard; cudaguard.install({mode!r})\n"
        done, _ = run(install + texts(*order) + (CHANGES if "exporting" in order else ""))
        lines = done.stdout.splitlines()
        assert (set(lines[: len(order)]), done.stderr) == ({RIGHT}, "")
        if "exporting" in order:
            change = "exporting: mapped from a copy in memory, in which its C++ runtime is its own"
            assert lines[len(order)] == f"{change} by CG813 (stays) ()"
            assert lines[-1] == f"True {modules}/exporting.so"


def test_module_comes_again(run):
    again = "import sys; del sys.modules['exporting']\n"
    code = texts("exporting", "shared") + again + texts("exporting")
    done, _ = run("import cudaguard; cudaguard.install()\n" + code)
    assert (done.stdout.splitlines(), done.stderr) == ([RIGHT] * 3, "")


BESIDE = SOURCE.replace("out <<", "int beside(); out << (beside() ?").replace(
    '"all "', '"all " : "")'
)
NAMELESS = "// without a soname\n"
# As an unwinder does that is linked in.
WALKS = "dl_iterate_phdr([](dl_phdr_info *, size_t, void *) { return 0; }, nullptr); "
WALKING = "#include <link.h>\n" + BESIDE.replace("int beside();", "int beside(); " + WALKS)
OPENING = SOURCE.replace("out <<", 'if (dlopen("libbeside.so", RTLD_LAZY)) out <<')
OPENING = f"#include <dlfcn.h>\n{OPENING}"


@pytest.mark.parametrize(
    ("library", "source", "flags", "why"),
    [
        ("int beside() { return 1; }", BESIDE, ["libbeside.so"], ""),
        (f"{NAMELESS}int beside() {{ return 1; }}", BESIDE, ["-L.", "-lbeside"], ""),
        ("int beside() { return 1; }", WALKING, ["libbeside.so", "-static-libgcc"], ""),
        (
            'extern "C" int PyInit_leading(); int beside() { return (long)PyInit_leading != 1; }',
            BESIDE,
            ["libbeside.so"],
            "libbeside.so, which it needs, uses its PyInit_leading",
        ),
        ("int beside;", OPENING, [], "it may open libbeside.so, which its own folder has"),
    ],
)
def test_library_that_its_own_folder_has(run, child, library, source, flags, why):
    """A copy lies elsewhere: what it needs is opened first, where that changes nothing else."""
    soname = () if NAMELESS in library else ("-Wl,-soname,libbeside.so",)
    compiled(child.folder, "libbeside", library, *soname)
    compiled(child.folder, "leading", source, STATIC, *flags, "-ldl", "-Wl,-rpath,$ORIGIN")
    code = texts("shared", "leading")
    red, _ = run(code)
    assert red.stdout.splitlines()[1] == WRONG
    done, _ = run("import cudaguard; cudaguard.install()\n" + code)
    assert done.stdout == (red.stdout if why else f"{RIGHT}\n{RIGHT}\n")
    assert f"not repaired: {why}" in done.stderr if why else not done.stderr


PART = 'unsigned part() asm("_ZNSt13random_device9_M_getvalEv"); unsigned part() { return 7; }'
OWN_NEW = """
#include <cstdlib>
void *operator new(std::size_t size) { return malloc(size); }
void operator delete(void *block) noexcept { free(block); }
"""


IMPORT, OPEN = "import leading", "import ctypes; ctypes.CDLL({file!r})"


@pytest.mark.parametrize(
    ("load", "more", "flags", "is_first"),
    [
        (IMPORT, PART, (), True),
        (OPEN, PART, (), True),
        (IMPORT, PART + OWN_NEW, (), False),
        (IMPORT, "", (), False),
        (IMPORT, "", (STATIC,), True),
    ],
)
def test_shared_runtime_is_not_bound_to_parts_of_it(run, child, load, more, flags, is_first):
    """The loader asks who needs libstdc++ before libstdc++ itself, if it maps both together."""
    compiled(child.folder, "needing", "#include <iostream>\nvoid say() { std::cout << 1; }")
    source = f"{SOURCE}{more}\nvoid say(); void both() {{ say(); }}"
    file = compiled(child.folder, "leading", source, *flags, "./needing.so", "-Wl,-rpath,$ORIGIN")
    if flags:  # as older compilers write: no object is one for all
        data = bytearray(file.read_bytes())
        with ElfFile(str(file)) as elf:
            for place, _ in elf.unique():
                data[place + SYMBOL_KIND] = 0x21
        file.write_bytes(data)
    code = f"{load.format(file=str(file))}\nprint(cudaguard.status().changes[4:])\n"
    said = {}
    for mode in ("off", "fix"):
        install = f"import cudaguard; cudaguard.install({mode!r})\n"
        done, _ = run(install + code, LD_DEBUG="bindings")
        bound = f"libstdc++.so.6 [0] to {file} [0]" in done.stderr
        said[mode] = bound, "which has parts of it by CG813" in done.stdout
    assert said["off"] == (bool(more or flags), False)
    assert said["fix"] == ((False, True) if is_first else said["off"])


def test_extension_is_mapped_as_it_is_where_no_copy_can_be_made(run):
    limit = "import cudaguard, resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    done, _ = run(f"{limit}cudaguard.install()\n{texts('exporting')}")
    assert done.stdout == f"{RIGHT}\n"
    assert done.stderr.count("[CG813]") == 1
    assert "not repaired: the size of files is limited" in done.stderr


def test_one_copy_is_not_taken_for_another(run):
    """The loader goes by the path, and a daemon closes what it finds open."""
    close = "import os; os.closerange(3, 100)\n"
    code = texts("exporting") + close + texts("exporting_all")
    code += "print(exporting.__spec__.name, exporting_all.__spec__.name)\n"
    code += "del sys.modules['exporting']\nimport exporting; print(exporting.text())\n"
    done, _ = run("import cudaguard, sys; cudaguard.install()\n" + code)
    names = "exporting exporting_all"
    assert (done.stdout.splitlines(), done.stderr) == ([RIGHT, RIGHT, names, RIGHT], "")
    files = run(
        "import cudaguard, os; cudaguard.install()\n"
        + texts("exporting")
        + "print([f for f in os.listdir('/proc/self/fd') if f not in '0123'])\n"
    )[0]
    assert files.stdout == f"{RIGHT}\n[]\n"


def test_module_that_refuses_itself_is_asked_once(run, child):
    source = SOURCE.replace(
        "{ return PyModule_Create(&definition); }",
        """{
        puts("asked"); fflush(stdout);
        PyErr_SetString(PyExc_ImportError, "not here"); return nullptr; }""",
    )
    compiled(child.folder, "refusing", f"#include <cstdio>\n{source}", STATIC)
    code = "try:\n    import refusing\nexcept ImportError as error:\n    print(error)\n"
    done, _ = run("import cudaguard; cudaguard.install()\n" + code)
    assert (done.stdout, done.stderr) == ("asked\nnot here\n", "")


def test_spec_of_another_class(run, modules):
    code = f"""
import cudaguard, importlib.machinery, os, types; cudaguard.install()
path, Slots = "{modules}/exporting.so", type("Slots", (), dict(__slots__=("name", "origin")))
for spec in (types.SimpleNamespace(more=1), Slots()):
    spec.name, spec.origin = "exporting", path
    print(importlib.machinery.ExtensionFileLoader("exporting", path).create_module(spec).text())
print(len(os.listdir("/proc/self/fd")))  # the three, and that of the folder
"""
    done, _ = run(code)
    assert (done.stdout, done.stderr) == (f"{RIGHT}\n{RIGHT}\n4\n", "")


def test_who_asks_where_it_lies_is_mapped_from_there(run, child):
    source = (
        SOURCE.replace("#include <sst", "#include <dlfcn.h>\n#include <sst")
        .replace(
            "std::ostringstream out;",
            "std::ostringstream out; Dl_info me; dladdr((void *)&text, &me);",
        )
        .replace("out.str().c_str()", "me.dli_fname")
    )
    built = compiled(child.folder, "asking", source, STATIC, "-ldl")
    done, _ = run("import cudaguard; cudaguard.install()\n" + texts("asking"))
    assert done.stdout == f"{built}\n"
    assert "not repaired: it calls dladdr(), and may look for files beside its own" in done.stderr


@pytest.mark.parametrize("name", EXPORTING)
def test_it_is_told_of(run, modules, name):
    done, program = run(guarded("warn", name))
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
    if (nm := shutil.which("nm")) is None:
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
    done, _ = run(guarded("warn", "exporting").replace(REPORT, f"{code}{REPORT}"))
    assert done.stderr.count("[CG813]") == 1
    both, _ = run(guarded("warn", *EXPORTING))
    assert both.stderr.count("[CG813]") == 2


def test_package_that_imports_it_is_named_by_its_line(run, child):
    child.write("package/__init__.py", "\n\nfrom exporting import text\n")
    done, _ = run("import cudaguard; cudaguard.install('warn')\nimport package\n")
    assert done.stderr.startswith(f"{child.folder}/package/__init__.py:3: SymbolScopeWarning")
