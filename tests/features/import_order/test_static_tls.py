"""A bundled library that wants static TLS is loaded while there is room for it.

Compiled stand-ins: a framework that does without its own library where that finds no room, and a
package that does not do without its libgomp.
"""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="static TLS is the loader's")

SOURCE = """
static __thread char room[{size}] __attribute__((tls_model("{model}")));
char *here(int at) {{ return room + at; }}
"""
GOMP = "libgomp-d22c30c5.so.1.0.0"
OPEN = """
import ctypes, os
HERE = os.path.dirname(__file__)
ctypes.CDLL(os.path.join(HERE, {path!r}))
"""
OPTIONAL = """
import ctypes, os
try:
    ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libframework.so"))
except OSError:
    pass
"""
RULE = """
import cudaguard
rule = cudaguard.Rule("CG068", ("framework",), "it is small",
                      actions=({"preload_static_tls": "libgomp*.so*"},))
cudaguard.install(MODE, rules=[rule])
"""
IMPORTS = "import framework\nfrom boost import train\n"
END = """
print("trained")
for one in cudaguard.status().changes:
    if "CG068" in one:
        print(one)
"""


@pytest.fixture
def site(child, compiler):
    """A framework of a library, and a package whose distribution has another name than it."""

    def library(path, size, model="initial-exec"):
        built = compiler.library(path.rpartition("/")[2], SOURCE.format(size=size, model=model))
        child.write(path, "")
        (child.folder / path).write_bytes(built.read_bytes())

    library("framework/lib/libframework.so", 1100)
    library(f"py_boost.libs/{GOMP}", 700)
    child.write("framework/__init__.py", OPTIONAL)
    child.write("boost/__init__.py", OPEN.format(path=f"../py_boost.libs/{GOMP}") + "train = 1\n")
    info = "py_boost-1.7.1.dist-info"
    child.write(f"{info}/METADATA", "Metadata-Version: 2.1\nName: py-boost\nVersion: 1.7.1\n")
    child.write(f"{info}/RECORD", f"py_boost.libs/{GOMP},,\nboost/__init__.py,,\n")
    return child


def run(site, lines, mode="fix", start=RULE):
    program = site.write("train.py", start.replace("MODE", repr(mode)) + lines + END)
    return site.command(sys.executable, program, check=False)


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_library_of_the_next_package_is_loaded_first(site, mode):
    done = run(site, IMPORTS, mode)
    assert done.stdout.splitlines() == [
        "trained",
        f"{site.folder}/py_boost.libs/{GOMP}: loaded before framework by CG068 (stays)",
    ]
    assert done.stderr == ""


@pytest.mark.parametrize("mode", ["warn", "observe", "off"])
def test_other_modes_leave_the_order(site, mode):
    """The red half: what comes last is refused."""
    done = run(site, IMPORTS, mode)
    assert "cannot allocate memory in static TLS block" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    "lines",
    [
        "import framework\n",
        "import framework\nif len('a') > 1:\n    import boost\n",
        "import framework\nimport json\n",
    ],
)
def test_package_that_is_not_imported_next_is_left_alone(site, lines):
    done = run(site, lines)
    assert (done.stdout, done.stderr) == ("trained\n", "")


def test_library_without_fixed_places_is_left_alone(site, compiler):
    built = compiler.library("dynamic.so", SOURCE.format(size=700, model="global-dynamic"))
    (site.folder / "py_boost.libs" / GOMP).write_bytes(built.read_bytes())
    done = run(site, IMPORTS)
    assert (done.stdout, done.stderr) == ("trained\n", "")


@pytest.mark.parametrize(("machine", "is_kept"), [("aarch64", True), ("x86_64", False)])
def test_built_in_rule(site, machine, is_kept):
    site.write("cv2.py", "import framework\n")
    start = f"import os, posix\nhere = os.uname_result((*os.uname()[:4], {machine!r}))\n"
    start += "os.uname = posix.uname = lambda here=here: here\n"
    start += "import cudaguard; cudaguard.install()\n"
    done = run(site, "import cv2\nimport boost\n", start=start)
    assert (done.stdout.partition("\n")[0] == "trained") is is_kept, done.stderr
