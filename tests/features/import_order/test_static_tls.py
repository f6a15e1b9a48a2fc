"""A bundled library that wants static TLS is loaded while there is room for it.

Compiled stand-ins: a framework that does without its own library where that finds no room, and a
package that does not do without its libgomp.
"""

from __future__ import annotations

import platform
import sys
import sysconfig

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="static TLS is the loader's")

SOURCE = """
static __thread char room[{size}] __attribute__((tls_model("initial-exec")));
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
TABLE = """
#include <Python.h>
static __thread char room[480];
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_table", 0, -1, 0};
PyMODINIT_FUNC PyInit__table(void) { room[1] = 1; return PyModule_Create(&definition); }
"""
DESCRIPTORS = ["-mtls-dialect=gnu2"] if platform.machine() == "x86_64" else []
IMPORTS = "import framework\nfrom boost import train\n"
IN_FUNCTION = "import tables\ndef fit():\n    import boost\nfit()\n"
END = """
print("trained")
for one in cudaguard.status().changes:
    if "CG068" in one:
        print(one)
"""


@pytest.fixture
def site(child, compiler):
    """A framework of a library, and a package whose distribution has another name than it."""

    def library(path, source, *flags):
        compiler.put(child.folder / path, source, *flags)

    library("framework/lib/libframework.so", SOURCE.format(size=1100))
    library(f"py_boost.libs/{GOMP}", SOURCE.format(size=1300))
    table = f"tables/_table{sysconfig.get_config_var('EXT_SUFFIX')}"
    library(table, TABLE, *DESCRIPTORS)
    child.write("tables/__init__.py", "from . import _table\n")
    child.write("framework/__init__.py", OPTIONAL)
    child.write("boost/__init__.py", OPEN.format(path=f"../py_boost.libs/{GOMP}") + "train = 1\n")
    files = (f"py_boost.libs/{GOMP}", "boost/__init__.py")
    child.distribution("py-boost", "1.7.1", files=files)
    return child


def run(site, lines, mode="fix"):
    start = f"import cudaguard\ncudaguard.install({mode!r})\n"
    return site.command(sys.executable, site.write("train.py", start + lines + END), check=False)


@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize(
    ("lines", "first"), [(IMPORTS, "libframework.so"), (IN_FUNCTION, "tables._table")]
)
def test_library_of_a_later_package_is_loaded_first(site, lines, first, mode):
    done = run(site, lines, mode)
    said = f"{site.folder}/py_boost.libs/{GOMP}: loaded before {first} by CG068 (stays)"
    assert (done.stdout, done.stderr) == (f"trained\n{said}\n", "")


@pytest.mark.parametrize("lines", [IMPORTS, IN_FUNCTION], ids=["imports", "function"])
@pytest.mark.parametrize("mode", ["warn", "observe", "off"])
def test_other_modes_leave_the_order(site, lines, mode):
    """The red half: what comes last is refused."""
    done = run(site, lines, mode)
    assert (done.returncode, "in static TLS block" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    "lines",
    ["import framework\n", "import framework\nimport json\n", "import json\nimport boost\n"],
)
def test_nothing_is_loaded_that_need_not_come_first(site, lines):
    done = run(site, lines)
    assert (done.stdout, done.stderr) == ("trained\n", "")
