"""Real extensions and libraries, compiled by the tests; and what the loader says of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

TO_THE_END = pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="before Python 3.11 an import that rules watch is not looked at to its end",
)
MODULE = """
#include <Python.h>
{body}
static struct PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{name}", 0, -1, 0}};
PyMODINIT_FUNC PyInit_{name}(void) {{ {call} return PyModule_Create(&definition); }}
"""
LOADER = """
import ctypes
program = ctypes.pythonapi
load, said = program["dlopen"], program["dlerror"]
load.restype, said.restype = ctypes.c_void_p, ctypes.c_char_p
load.argtypes = (ctypes.c_char_p, ctypes.c_int)
"""
# The loader's own answer, as an import gets it: "" or what it says.
TRUTH = f"""{LOADER}
import os, sys
for path in sys.argv[2:]:
    ctypes.CDLL(path)
print("" if load(os.fsencode(sys.argv[1]), os.RTLD_NOW) else said().decode())
"""
CHECK = """
import ctypes, json, sys
import cudaguard
for path in sys.argv[2:]:
    ctypes.CDLL(path)
before = open("/proc/self/maps").read().count(".so")
check = cudaguard.check_extension(sys.argv[1])
# The line that `import` itself would add, and nothing of what the extension needs.
print(json.dumps(check.to_dict()))
"""


def pytest_collection_modifyitems(items):
    """Mark what needs a platform that the reader is for, and a compiler."""
    here = str(Path(__file__).parent)
    is_ours = sys.platform.startswith("linux") and sys.byteorder == "little" and (
        (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
        and shutil.which("cc") is not None
    )  # fmt: skip
    for item in items:
        if str(item.path).startswith(here) and not is_ours:
            item.add_marker(pytest.mark.skip(reason="needs glibc on Linux, and a C compiler"))


class Builder:
    """Compiles into one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, source: str, *flags: object, compiler: str = "cc") -> Path:
        """Build a shared object from C (or C++) source; return its path."""
        built = self.folder / name
        built.parent.mkdir(parents=True, exist_ok=True)
        file = built.with_name(built.name + (".c" if compiler == "cc" else ".cpp"))
        file.write_text(source, encoding="utf-8")
        kind = () if "-pie" in flags else ("-shared",)
        command = [compiler, *kind, "-fPIC", "-w", "-o", built, file, *flags]
        done = subprocess.run(
            [str(part) for part in command], cwd=self.folder, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        file.unlink()
        return built

    def module(self, name: str, *flags: object, call: str = "", body: str = "") -> Path:
        """Build an extension module whose initialization runs `call`."""
        source = MODULE.format(name=name, call=call, body=body)
        include = f"-I{sysconfig.get_path('include')}"
        return self(f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}", source, include, *flags)

    def library(self, soname: str, source: str = "int absent_f(void) { return 1; }") -> Path:
        """Build a library with a soname."""
        return self(soname, source, f"-Wl,-soname,{soname}")


@pytest.fixture
def build(tmp_path: Path) -> Builder:
    """Compiles into `tmp_path`."""
    return Builder(tmp_path)


@pytest.fixture
def loader(child) -> Callable[..., str]:
    """Returns what the dynamic loader says of a file in a fresh process, "" if it loads it."""

    def loader(path: Path, *loaded: Path, **options) -> str:
        return child.python(TRUTH, path, *loaded, **options).stdout.strip()

    return loader


@pytest.fixture
def check(child) -> Callable[..., dict]:
    """Returns what `check_extension` says of a file in a fresh process, as data."""
    import json

    def check(path: Path, *loaded: Path, **options) -> dict:
        done = child.python(CHECK, path, *loaded, **options)
        assert done.stderr == ""
        return json.loads(done.stdout)

    return check


@pytest.fixture
def agree(check, loader) -> Callable[..., dict]:
    """Returns the check of a file, once it is seen to agree with the loader."""

    def agree(path: Path, *loaded: Path, **options) -> dict:
        found, said = check(path, *loaded, **options), loader(path, *loaded, **options)
        assert found["ok"] is (said == ""), (found, said)
        for name in found["missing_libraries"][:1]:
            assert said.startswith(f"{name}: cannot open shared object file"), said
        if found["missing_symbols"] and "undefined symbol" in said:
            assert any(name in said for name, _ in found["missing_symbols"]), said
        return found

    return agree
