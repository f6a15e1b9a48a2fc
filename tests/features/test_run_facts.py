"""What `cudaguard run` adds to an error from the process in which it was raised."""

from __future__ import annotations

import shutil
import sys

import pytest


@pytest.fixture
def ended(child):
    """Run a program under the launcher that ends with an error; return the report."""

    def ended(code: str, error: str, **env: str) -> str:
        script = child.write("prog.py", f"{code}\nraise RuntimeError({error!r})\n")
        command = (sys.executable, "-m", "cudaguard", "run", script)
        return child.command(*command, env=env, check=False).stderr.rpartition("cudaguard run:")[2]

    return ended


@pytest.mark.parametrize(("folder", "is_stub"), [("stubs", True), ("driver", False)])
def test_stub_of_the_toolkit_is_no_driver(ended, child, driver_stubs, folder, is_stub):
    """NVIDIA/warp#219; where it is the driver, the CUDA that it can do is told."""
    (child.folder / folder).mkdir()
    file = shutil.copy(driver_stubs.folder / "libcuda.so.1", child.folder / folder / "libcuda.so.1")
    code, finding = (
        f"import ctypes; ctypes.CDLL({str(file)!r})",
        "Invalid device identifier: cuda:0",
    )
    said = ended(code, finding)
    assert ("stub library was loaded in place of the driver" in said) is is_stub
    assert (
        f"fix: take {child.folder}/stubs out of LD_LIBRARY_PATH: it is for linking alone\n" in said
    ) is is_stub
    assert said.endswith("run: ldconfig -p | grep libcuda.so\n") is is_stub
    assert ("the driver here is for CUDA 13.0 and" in said) is not is_stub


def test_variable_that_is_to_be_unset_is_shown(ended):
    error = "proj.db contains DATABASE.LAYOUT.VERSION.MINOR = 0 whereas a number >= 3 is expected"
    said = ended("", error, PROJ_LIB="/opt/qgis/proj")
    assert "in this process: PROJ_LIB=/opt/qgis/proj\n" in said
    assert "GDAL_DATA=" not in said


def test_files_that_are_there_instead_are_shown(ended, child):
    there = child.write("graphbolt/libgraphbolt_pytorch_2.2.1.so", "")
    asked = there.with_name("libgraphbolt_pytorch_2.13.0.so")
    said = ended("", f"Cannot find DGL C++ graphbolt library at {asked}")
    assert "[CG706]" in said
    assert "in that folder: libgraphbolt_pytorch_2.2.1.so\n" in said


@pytest.mark.parametrize("has_more", [True, False])
def test_folder_that_hides_an_installed_package_is_named(ended, child, has_more):
    """cocodataset/cocoapi#272: sources without their extension, in the folder of the program."""
    for file in ("rows/__init__.py", "later/rows/__init__.py", "later/rows/_mask.py"):
        child.write(file if has_more else file.replace("_mask", "mask"), "")
    said = ended("import os, sys; sys.path.append(os.path.abspath('later')); import rows._mask", "")
    told = f"give {child.folder}/rows another name: it hides the one in {child.folder}/later, which"
    assert (told in said) is has_more


@pytest.mark.parametrize(("end", "system"), [("darwin.so", "macOS"), ("win_amd64.pyd", "Windows")])
def test_extension_for_another_system_is_named(ended, child, end, system):
    """googleapis/python-container#20: a folder for the cloud, made on another machine."""
    child.write("rows/__init__.py", "")
    child.write(f"rows/_mask.cpython-311-{end}", "\xfe")
    said = ended("from rows import _mask", "")
    assert f"_mask.cpython-311-{end} was not loaded: it was built for {system}, and this" in said
    assert "--platform manylinux2014_x86_64" in said


def test_glibc_is_named_besides_libstdcxx(ended, child, compiler):
    """PrimeIntellect-ai/pccl#20: the loader names the first version that it does not find."""
    versions = child.write("c.map", "GLIBC_2.99 { global: later; }; GLIBC_2.100 {} GLIBC_2.99;")
    flags = (f"-Wl,--version-script={versions}", "-Wl,-soname,libc.so.6")
    libc = compiler.library("libc.so.6", "int later;", *flags)
    asking = compiler.library("libasking.so", "extern int later; int *asks = &later;", str(libc))
    error = "/lib/libstdc++.so.6: version `GLIBCXX_3.4.99' not found (required by {})"
    said = ended("", error.format(asking))
    assert "needs libstdc++ with GLIBCXX_3.4.99, and glibc with GLIBC_2.99: both are older" in said
    assert "run: ldd --version\n" in said
    assert "and glibc" not in ended("", error.format("/nowhere/libasking.so"))


@pytest.mark.parametrize(
    ("requires", "code", "is_told"),
    [
        ("tree", "tree.build(1, 2)", True),
        ("tree (>=0.2)", "tree.Language.build", sys.version_info >= (3, 10)),
        ("tree; extra == 'speed'", "tree.build(1, 2)", False),
        ("tree>=0.2,<0.30", "tree.build(1, 2)", False),  # it was seen to work
        ("tree", "None.build", False),
        ("tree", "given.build", False),  # what the program gave it
        ("tree", "tree.Language().build", False),  # that may be given, too
        ("tree", "(lambda one: one)(1, 2)", False),  # as may a function
        ("tree", "tree.build(1, kind=1)", False),  # may be the program's, too
    ],
)
def test_two_packages_that_do_not_fit_are_named(ended, child, requires, code, is_told):
    """grantjenks/py-tree-sitter-languages#64: no highest version is required, and it fails."""
    child.distribution("tree", "0.22.3")
    child.distribution("tree-rows", "1.10.2", requires=[requires])
    for name, dist in (("tree", "tree-0.22.3"), ("tree_rows", "tree_rows-1.10.2")):
        child.write(f"{dist}.dist-info/top_level.txt", name)
    child.write("tree.py", "class Language: pass\nbuild = abs  # as of C")
    child.write("tree_rows.py", f"import tree\ndef get(given): return {code}")
    said = ended("class Mine: pass\nimport tree_rows; tree_rows.get(Mine())", "")
    assert ("[CG781] tree-rows 1.10.2 does not fit tree 0.22.3: it fails" in said) is is_told
    assert ("pip install 'tree<0.22', or older" in said) is is_told


LATE = """
import os, rows
{first}
import rows.late
os.environ["ROWS_USE_LOCKING"] = "0"
rows.fail({said!r})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped is read from /proc")
@pytest.mark.parametrize(
    ("said", "first", "is_told"),
    [
        ("cannot lock the file", "", True),
        ("no such file", "", False),  # it speaks of something else
        ("cannot lock the file", "os.environ['ROWS_USE_LOCKING'] = '1'", False),  # in time
    ],
)
def test_variable_that_a_library_has_read_before_is_named(
    ended, child, compiler, said, first, is_told
):
    """silx-kit/pymca#598: HDF5 reads its variables when it is loaded."""
    library = child.folder / "rows" / "librows.so"
    library.parent.mkdir()
    compiler.put(library, 'const char *name(void) { return "ROWS_USE_LOCKING"; }')
    child.write("rows/__init__.py", "def fail(said): raise OSError(said)")
    child.write("rows/late.py", f"import ctypes; ctypes.CDLL({str(library)!r})")
    told = ended(LATE.format(said=said, first=first), "")
    found = "ROWS_USE_LOCKING was set to '0' after librows.so was loaded and had read it"
    assert (found in told) is is_told
    assert (f"changed at {child.folder}/prog.py:5\n" in told) is is_told
