"""Would it load? Each answer is held against what the dynamic loader does with the same file."""

from __future__ import annotations

import ctypes
import shutil
import struct
import sys
import sysconfig

import pytest

import cudaguard

CALL = {"body": "int absent_f(void);", "call": "absent_f();"}


def test_healthy_extension(build, agree):
    found = agree(build.module("healthy"))
    assert (found["ok"], found["cause"], found["message"], found["remedy"]) == (True, None, "", "")


@pytest.mark.parametrize("hashes", ["gnu", "sysv", "both"])
def test_symbol_that_nobody_has(build, agree, hashes):
    found = agree(build.module("half", f"-Wl,--hash-style={hashes}", **CALL))
    assert found["cause"] == "own-source-missing"
    assert found["missing_symbols"] == [["absent_f", "absent_f"]]
    assert "absent_f" in found["message"]


def test_weak_symbol_that_nobody_has_is_no_fault(build, agree):
    weak = "__attribute__((weak)) int absent_f(void);"
    assert agree(build.module("weak", body=weak, call="if (absent_f) absent_f();"))["ok"] is True


def test_symbol_of_the_program_and_of_what_is_global(build, agree):
    library = build.library("libabsent.so.3")
    extension = build.module("uses", **CALL)
    assert agree(extension)["ok"] is False
    assert agree(extension, library)["ok"] is False  # ctypes loads it for itself
    assert agree(build.module("links", library, **CALL), library)["ok"] is True


# --- libraries -----------------------------------------------------------------------------------


@pytest.fixture
def absent(build):
    """A library in a folder of its own, where nobody looks."""
    library = build.library("libabsent.so.3")
    (build.folder / "away").mkdir()
    return library.rename(build.folder / "away" / library.name)


def test_library_that_is_nowhere(build, absent, agree):
    found = agree(build.module("links", absent, **CALL))
    assert found["cause"] == "library-missing"
    assert found["missing_libraries"] == ["libabsent.so.3"]
    assert found["missing_symbols"] == [["absent_f", "absent_f"]]  # what the library would define


def test_other_release_of_a_library_that_is_nowhere_is_named(build, absent, check, child):
    """As openvino 2025 has libopenvino.so.2500, and openvino-genai 2024 needs that of 2024."""
    child.distribution("own", "2025.0", files=("own/libabsent.so.4",))
    child.write("own/libabsent.so.4", "")
    path = {"PYTHONPATH": str(child.folder)}
    found = check(build.module("links", absent, **CALL), env=path)
    assert "does not find; own has libabsent.so.4" in found["message"]
    assert found["remedy"] == "install the own that links was built with"


@pytest.mark.parametrize("folder", ["${ORIGIN}/away", "away", "/nowhere:$ORIGIN/away"])
def test_run_path(build, absent, agree, folder):
    """A folder that is not absolute counts from the working directory."""
    assert agree(build.module("links", absent, f"-Wl,-rpath,{folder}", **CALL))["ok"] is True


@pytest.mark.parametrize(
    ("tags", "ok"), [("--disable-new-dtags", True), ("--enable-new-dtags", False)]
)
def test_only_the_older_kind_of_run_path_is_handed_on(build, absent, agree, tags, ok):
    """The extension finds libmiddle, which has no path itself and needs libabsent."""
    middle = build(
        "away/libmiddle.so", "int absent_f(void); int m(void) { return absent_f(); }", absent
    )
    path = build.module(
        "chain", middle, f"-Wl,{tags},-rpath,$ORIGIN/away", f"-Wl,-rpath-link,{absent.parent}",
        body="int m(void);", call="m();",
    )  # fmt: skip
    found = agree(path)
    assert found["ok"] is ok
    if not ok:
        assert "(through libmiddle.so)" in found["message"]


def test_origin_is_the_folder_of_the_link_by_which_it_is_opened(build, absent, agree):
    path = build.module("links", absent, "-Wl,-rpath,$ORIGIN/away", **CALL)
    (build.folder / "links").mkdir()
    link = build.folder / "links" / path.name
    link.symlink_to(path)
    assert agree(link)["ok"] is False
    (build.folder / "links" / "away").mkdir()
    shutil.copy(absent, build.folder / "links" / "away")
    assert agree(link)["ok"] is True


def test_search_path_of_the_environment_counts_as_it_was_at_the_start(build, absent, agree, child):
    path = build.module("links", absent, **CALL)
    assert agree(path, env={"LD_LIBRARY_PATH": f"/nowhere:{absent.parent}"})["ok"] is True
    done = child.python(
        f"""
        import os, cudaguard
        os.environ["LD_LIBRARY_PATH"] = {str(absent.parent)!r}
        check = cudaguard.check_extension({str(path)!r})
        print(check.ok, {str(absent)!r} in check.remedy)
        """
    )
    assert done.stdout == "False True\n"


def test_library_that_is_mapped_already_is_found_by_its_soname(build, absent, agree):
    path = build.module("links", absent, **CALL)
    assert agree(path, absent)["ok"] is True
    assert agree(path, absent.rename(absent.with_name("renamed.so")))["ok"] is True


def test_fault_of_a_library_that_comes_along(build, agree):
    """The loader binds what it maps on the way, too."""
    middle = build("libmiddle.so", "int absent_f(void); int m(void) { return absent_f(); }")
    path = build.module(
        "chain", middle, "-Wl,--unresolved-symbols=ignore-all", body="int m(void);", call="m();"
    )
    assert agree(path)["missing_symbols"] == [["absent_f", "absent_f"]]


# --- versions ------------------------------------------------------------------------------------

VERSIONED = """
#include <stdio.h>
int absent_f(void) { return puts(""); }
int other_f(void) { return 2; }
"""
BOTH = "NAME_1 { global: absent_f; }; NAME_2 { global: other_f; } NAME_1;"


@pytest.fixture
def versions(build):
    """Returns a library whose functions have versions by a linker script; None for without."""

    def versions(script):
        flags = ["-Wl,-soname,libversioned.so.1"]
        if script is not None:
            (build.folder / "names.map").write_text(script, encoding="utf-8")
            flags.append("-Wl,--version-script=names.map")
        return build("libversioned.so.1", VERSIONED, *flags)

    return versions


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (BOTH, None),
        ("NAME_1 { global: absent_f; };", "symbol-version"),
        ("NAME_0 { global: absent_f; other_f; };", "symbol-version"),
        (
            "NAME_1 { global: absent_f; }; NAME_2 { global: nothing; local: other_f; } NAME_1;",
            "symbols",
        ),
        ("NAME_1 { global: absent_f; other_f; }; NAME_2 { global: nothing; } NAME_1;", "symbols"),
        (None, None),  # a library that knows no versions is let pass
    ],
    ids=["same", "older", "other", "local", "moved", "none"],
)
def test_versions(build, versions, agree, script, cause):
    library = versions(BOTH)
    path = build.module(
        "uses", library, "-Wl,-rpath,$ORIGIN", body="int absent_f(void); int other_f(void);",
        call="absent_f(); other_f();",
    )  # fmt: skip
    versions(script)
    for loaded in ((), (library,)):  # from the file, and from memory
        found = agree(path, *loaded)
        assert found["ok"] is (cause is None)
        if cause == "symbol-version":
            assert found["cause"] == cause
            assert str(library) in found["message"]
        elif cause:
            assert found["missing_symbols"] == [["other_f", "other_f"]]


# --- the file itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "cause"),
    [(b"\x7fELF\x02\x01", "truncated"), (b"#!/bin/sh\n" + bytes(100), "not-elf")],
)
def test_what_is_no_library(tmp_path, agree, content, cause):
    (tmp_path / "odd.so").write_bytes(content)
    assert agree(tmp_path / "odd.so")["cause"] == cause


@pytest.mark.parametrize(("place", "value"), [(18, 22), (4, 1), (5, 2)], ids=str)
def test_other_machine(build, agree, place, value, monkeypatch):
    path = build.module("other")
    content = bytearray(path.read_bytes())
    content[place] = value
    path.write_bytes(content)
    found = agree(path)
    assert found["cause"] == "wrong-machine"
    assert ("S/390" in found["message"]) is (value == 22)
    with pytest.raises(OSError, match="other") as error:  # "No such file", says glibc
        ctypes.CDLL(str(path))
    assert cudaguard.explain(error.value).id == "CG753"
    (package := path.parent / "pkg").mkdir()
    path.rename(package / "other.cpython-39-aarch64-linux-gnu.so")  # an import does not look at it
    monkeypatch.syspath_prepend(path.parent)
    said = "ModuleNotFoundError: No module named 'pkg.other'"
    assert "other.cpython-39-aarch64-linux-gnu.so was" in cudaguard.explain(said).what
    next(package.iterdir()).unlink()
    for name, id in (("other.cpython-27-x86_64-linux-gnu.so", "CG883"), (path.name, "")):
        build.module("other").rename(package / name)
        assert getattr(cudaguard.explain(said), "id", "") == id


def test_truncated_at_several_lengths(build, check, loader, child):
    """Not all of them kill the process, but none of them loads what was built."""
    path = build.module("short", body="static char data[9000] = {1};", call="data[5000]++;")
    whole = path.read_bytes()
    table = struct.unpack_from("<Q", whole, 32)[0]
    heads = [struct.unpack_from("<IIQQQQ", whole, table + 56 * n) for n in range(whole[56])]
    end = max(offset + length for kind, _, offset, _, _, length in heads if kind == 1)
    for length in (1, 63, 64, 100, 500, 4096, end // 2, end - 1):
        path.write_bytes(whole[:length])
        assert check(path)["cause"] == "truncated", length
    path.write_bytes(whole[:end])  # what follows is for linkers and debuggers
    assert check(path)["ok"] is True
    assert loader(path) == ""


@pytest.mark.parametrize("path", ["missing.so", "."])
def test_what_cannot_be_read_cannot_be_judged(path):
    found = cudaguard.check_extension(path)
    assert (found.ok, found.cause) in {(None, "unknown"), (False, "truncated")}
    assert found.message


def test_extension_of_another_python(build, agree, check):
    path = build.module("old", body="int PyOld_Function(void);", call="PyOld_Function();")
    found = agree(path)
    assert found["cause"] == "python-abi"
    assert "PyOld_Function" in found["message"]
    # No import looks at a file for another Python, whatever else that lacks.
    for other in (build.module("healthy"), path):
        found = check(other.rename(other.with_name(f"{other.name[:3]}.cpython-37m-x86_64.so")))
        assert (found["ok"], found["cause"]) == (False, "python-abi")
        assert "3.7" in found["message"]


# What import_array() of NumPy 1.26 compiles into an extension, in short.
IMPORT_ARRAY_1 = """
static void *import_array_1(void) {
    PyObject *numpy = PyImport_ImportModule("numpy.core._multiarray_umath");
    PyObject *table = numpy ? PyObject_GetAttrString(numpy, "_ARRAY_API") : NULL;
    if (!table)
        return PyErr_Clear(), PyErr_SetString(
            PyExc_ImportError, "numpy.core.multiarray failed to import"), NULL;
    if (!PyCapsule_CheckExact(table))
        PyErr_Format(PyExc_RuntimeError, "module compiled against ABI version 0x%x but this "
                     "version of numpy is 0x%x", 0x1000009, 0);
    return table;
}
"""


@pytest.mark.parametrize(
    ("body", "call", "cause"),
    [
        (IMPORT_ARRAY_1, "if (!import_array_1()) return NULL;", "numpy-abi"),
        ("#include <numpy/arrayobject.h>", "import_array();", None),
    ],
)
def test_extension_for_numpy_1_under_numpy_2(build, check, child, body, call, cause):
    """The loader takes it. NumPy does not."""
    numpy = pytest.importorskip("numpy", minversion="2")
    path = build.module("arrays", f"-I{numpy.get_include()}", body=body, call=call)
    env = {"PYTHONPATH": str(path.parent)}
    done = child.command(sys.executable, "-c", "import arrays", env=env, check=False)
    assert ("numpy.core.multiarray failed to import" in done.stderr) is (done.returncode != 0)
    found = check(path)
    assert (found["ok"], found["cause"]) == (done.returncode == 0, cause)
    assert (f"NumPy {numpy.__version__} is installed" in found["message"]) is not found["ok"]


def test_older_copy_of_a_library_that_is_first(build, check, child):
    """As with NVIDIA's nvJitLink and NCCL; an extension that does not name them is another case."""
    declared = "int __nvJitLinkCreate_12_9(void);"
    call = {"body": declared, "call": "__nvJitLinkCreate_12_9();"}
    named = "-Wl,-soname,libnvJitLink.so.12"
    newer = build("newer/libnvJitLink.so.12", f"{declared[:-1]} {{ return 1; }}", named)
    older = build("older/libnvJitLink.so.12", "int f;", named)
    links = build.module("links", newer, f"-Wl,-rpath,{newer.parent}", **call)
    between = f"{declared} int g(void) {{ return __nvJitLinkCreate_12_9(); }}"
    through = build("libthrough.so", between, newer, f"-Wl,-rpath,{newer.parent}")
    comes = build.module("comes", through, "-Wl,-rpath,$ORIGIN", body="int g(void);", call="g();")
    alone = build.module("alone", **call)
    assert check(links)["ok"] is check(comes)["ok"] is True
    assert check(alone)["cause"] == "cuda-not-linked"
    assert check(alone)["remedy"].startswith("add -lnvJitLink to")
    for path, needer in ((links, links.name), (comes, f"libthrough.so (which {comes.name} needs)")):
        for found in (check(path, older), check(path, env={"LD_LIBRARY_PATH": str(older.parent)})):
            assert found["cause"] == "older-library"
            lacks = "`__nvJitLinkCreate_12_9`, but gets an older libnvJitLink.so.12 without it"
            assert found["message"] == f"{needer} needs {lacks}: {older}"


# --- how it is asked -----------------------------------------------------------------------------


def test_thousands_of_missing_symbols(build, check, child):
    """As an extension for another torch has them: what they may be of is looked at once."""
    libraries = [build.library(f"libown{n}.so", "") for n in range(12)]
    lacks = "".join(f"int absent_{n}(void); absent_{n}();" for n in range(6000))
    flags = "-Wl,--no-as-needed", *libraries, "-Wl,-rpath,/a:/b:/c:$ORIGIN"
    path = build("asks.so", f"void all(void) {{ {lacks} }}", *flags)
    assert len(check(path, *libraries)["missing_symbols"]) == 6000
    code = f"import ctypes, cudaguard\ncudaguard.install()\nctypes.CDLL({str(path)!r})"
    assert "undefined symbol: absent_" in child.python(code, check=False, timeout=60).stderr


def test_nothing_is_loaded_and_nothing_imported(build, absent, child):
    path = build.module("links", absent, "-Wl,-rpath,$ORIGIN/away", **CALL)
    build("torch/_C.so", "int absent_f(void) { return 1; }")
    done = child.python(
        f"""
        import sys, ctypes, sysconfig, glob
        sys.path.insert(0, {str(build.folder)!r})
        import cudaguard
        cudaguard.check_extension({sys.executable!r})  # what the check itself needs
        def mapped():
            return {{line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}}
        before, modules = mapped(), set(sys.modules)
        print(cudaguard.check_extension({str(path)!r}).ok)
        print(cudaguard.check_extension({str(path)!r}, assume_imported=("torch",)).ok)
        print(mapped() - before, {{m for m in set(sys.modules) - modules if m[:9] != "cudaguard"}})
        """
    )
    assert done.stdout == "True\nTrue\nset() set()\n"


def test_given_modules_count_as_loaded(build, absent, child):
    """Its libraries are found as the loader would find them after an import."""
    (build.folder / "provider").mkdir()
    library = shutil.copy(absent, build.folder / "provider")
    build(
        f"provider/_native{sysconfig.get_config_var('EXT_SUFFIX')}",
        "int absent_f(void); int g(void) { return absent_f(); }",
        library,
        "-Wl,-rpath,$ORIGIN",
    )
    (build.folder / "provider" / "__init__.py").write_text("1 / 0")
    path = build.module("links", absent, **CALL)
    code = f"""
        import sys, cudaguard
        sys.path.insert(0, {str(build.folder)!r})
        for given in (None, (), ("provider",), ("nobody",)):
            print(cudaguard.check_extension({str(path)!r}, assume_imported=given).ok)
        assert "provider" not in sys.modules
        """
    assert child.python(code).stdout.split() == ["False", "False", "True", "False"]


def test_wrong_arguments_are_refused():
    with pytest.raises(
        TypeError, match=r"assume_imported must be a tuple of module names such as \('torch',\)"
    ):
        cudaguard.check_extension("x.so", assume_imported="torch")
    with pytest.raises(TypeError):
        cudaguard.check_extension(3)
    with pytest.raises(TypeError, match="assume_imported must have names of modules such as"):
        cudaguard.check_extension("x.so", assume_imported=(None,))
