"""LD_LIBRARY_PATH that is changed in the running process: what was meant to be found by it."""

from __future__ import annotations

import pytest

TOLD = "LateEnvironmentWarning: [CG820] "
CHANGE = "import os, ctypes; os.environ['LD_LIBRARY_PATH'] = os.path.realpath('late')"
LOAD = """
try:
    ctypes.CDLL("liblate.so.1")
except OSError as error:
    print("refused:", error)
"""
FOUND = "import cudaguard; print([f.id for f in cudaguard.status().findings])"


@pytest.fixture
def scene(native, compiler):
    """A library in a folder `late`."""
    file = native.child.folder / "late/liblate.so.1"
    compiler.put(file, "int late(void) { return 1; }", "-Wl,-soname,liblate.so.1")
    return native


def test_library_that_lies_in_a_late_folder_is_told_of(scene):
    ran = scene.bare("import ctypes, cudaguard; cudaguard.install()", CHANGE, LOAD, FOUND)
    assert ran.lines[0].startswith("refused: liblate.so.1: cannot open shared object file")
    assert ran.lines[1] == "['CG820']"
    assert f"{TOLD}liblate.so.1 was not found.\n" in ran.err
    assert "ctypes.CDLL('" in ran.err


def test_extension_that_links_it(scene, compiler):
    """By the import statement: the error names the folder as well."""
    source = """
        #include <Python.h>
        int late(void);
        static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "user", 0, -1, 0};
        PyMODINIT_FUNC PyInit_user(void) { late(); return PyModule_Create(&definition); }
        """
    import sysconfig

    file = f"user{sysconfig.get_config_var('EXT_SUFFIX')}"
    late = scene.child.folder / "late" / "liblate.so.1"
    compiler.put(scene.child.folder / file, source, str(late))
    soname = "import ctypes, cudaguard; cudaguard.install('strict')"
    load = """
        try:
            import user
        except ImportError as error:
            print(type(error).__name__, "late" in str(error))
        """
    assert scene.bare(soname, CHANGE, load, FOUND).lines == ["ExtensionError True", "['CG820']"]


@pytest.mark.parametrize(
    "code",
    [
        LOAD,  # not set at all
        "import os; os.environ['LD_LIBRARY_PATH'] = '/nowhere'" + LOAD,
        CHANGE + "\n" + LOAD.replace("liblate", "libnobody"),
        CHANGE + "\nctypes.CDLL(None)",
    ],
)
def test_nothing_is_said_otherwise(scene, code):
    ran = scene.bare("import ctypes, cudaguard; cudaguard.install()", code, FOUND)
    assert ran.lines[-1] == "[]"
    assert ran.err == ""
