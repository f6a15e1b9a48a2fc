"""Files of Windows: what they say of themselves, and damaged ones."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaguard.system.pe import PeFile, read_pe

from ..pe_files import LOCKS, pe_file


def read(tmp_path, data):
    path = tmp_path / "a.dll"
    path.write_bytes(data)
    return read_pe(str(path))


def test_what_a_library_says(tmp_path):
    needed = {"KERNEL32.dll": ("Sleep",), **LOCKS}
    version, libraries = (14, 26, 28720, 3), ("kernel32.dll", "msvcp140.dll")
    found = read(tmp_path, pe_file(version=version, imports=needed))
    assert found == PeFile("AMD64", (14, 42), version, libraries, True)
    assert read(tmp_path, pe_file(machine=0x14C, linker=(14, 29))) == PeFile("x86", (14, 29))


@pytest.mark.parametrize(
    ("functions", "linker", "expected"),
    [
        (("_Mtx_lock",), (14, 42), True),
        (("_Mtx_lock", "_Mtx_init_in_situ"), (14, 42), False),  # std::recursive_mutex
        (("_Mtx_lock",), (14, 38), False),  # what torch 2.8 was linked with
        (("_Xlength_error",), (14, 44), False),
    ],
)
def test_which_libraries_need_a_new_runtime(tmp_path, functions, linker, expected):
    data = pe_file(imports={"msvcp140.dll": functions}, linker=linker)
    assert read(tmp_path, data).locks_without_init is expected


def test_other_files(tmp_path):
    assert read_pe(str(tmp_path)) == read_pe("no\0path") == PeFile()
    assert read(tmp_path, b"") == read(tmp_path, b"MZ") == read(tmp_path, b"\x7fELF") == PeFile()


WHOLE = pe_file(version=(14, 26, 0, 0), imports=LOCKS)


@given(
    st.integers(0, len(WHOLE) - 4), st.binary(min_size=1, max_size=4), st.integers(0, len(WHOLE))
)
def test_damaged_files_raise_nothing(tmp_path_factory, place, damage, end):
    path = tmp_path_factory.getbasetemp() / "damaged.dll"
    path.write_bytes((WHOLE[:place] + damage + WHOLE[place + len(damage) :])[:end])
    assert isinstance(read_pe(str(path)).imports, tuple)


def test_what_a_compiler_writes(tmp_path):
    if shutil.which("x86_64-w64-mingw32-gcc") is None:
        pytest.skip("there is no gcc-mingw-w64-x86-64 here")
    source, library = tmp_path / "a.c", tmp_path / "a.dll"
    source.write_text(
        '#include <stdlib.h>\nint a(void) { return abs(-1) + (int)atol(getenv("A")); }'
    )
    subprocess.run(["x86_64-w64-mingw32-gcc", "-shared", source, "-o", library], check=True)
    found = read_pe(str(library))
    assert (found.machine, found.version) == ("AMD64", ())
    assert {"kernel32.dll", "msvcrt.dll"} <= set(found.imports)
