"""Files of Windows: what they say of themselves, and damaged ones."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaguard import check_extension
from cudaguard.system.pe import PeFile, functions_lacking, is_too_old, needed_by, read_pe

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
    assert read_pe(str(tmp_path)) == read_pe("no\0path") == PeFile()
    assert read(tmp_path, b"") == read(tmp_path, b"MZ") == read(tmp_path, b"\x7fELF") == PeFile()


def test_which_libraries_need_a_new_runtime(tmp_path):
    def needs(linker, *functions):
        data = pe_file(imports={"msvcp140.dll": functions}, linker=linker)
        return read(tmp_path, data).locks_without_init

    assert needs((14, 42), "_Mtx_lock")
    assert not needs((14, 42), "_Mtx_lock", "_Mtx_init_in_situ")  # std::recursive_mutex
    assert not needs((14, 38), "_Mtx_lock")  # torch 2.8
    old = [is_too_old(one) for one in ((14, 26, 28720, 3), (14, 35), (14, 39, 1, 0), (14, 44), ())]
    assert old == [True, True, False, False, False]


def test_functions_that_a_copy_does_not_have(tmp_path):
    """Whichever copy of a name comes first serves all, as with Qt6Core.dll or zlib1.dll."""
    user, old, new = (tmp_path / name for name in ("a.dll", "zlib1.dll", "new/zlib1.dll"))
    new.parent.mkdir()
    user.write_bytes(pe_file(imports={"zlib1.dll": ("inflate", "inflateReset2"), **LOCKS}))
    old.write_bytes(pe_file(exports=("deflate", "inflate"), imports={"b.dll": ()}))
    new.write_bytes(pe_file(exports=("deflate", "inflate", "inflateReset2")))
    assert functions_lacking(str(user), str(old)) == ["inflateReset2"]
    assert functions_lacking(str(user), str(new)) == functions_lacking(str(user), "none") == []
    assert {*needed_by(str(user))} == {"zlib1.dll", "msvcp140.dll", "b.dll"}
    if sys.platform != "win32":  # where it needs a whole system
        found = check_extension(user)
        assert (found.ok, found.cause) == (False, "older-library")
        assert found.message == f"a.dll needs inflateReset2, which {old} does not have"
        old.write_bytes(new.read_bytes())
        assert check_extension(user).cause == "unknown"


WHOLE = pe_file(version=(14, 26, 0, 0), imports=LOCKS, exports=("a",))


@given(
    st.integers(0, len(WHOLE) - 4), st.binary(min_size=1, max_size=4), st.integers(0, len(WHOLE))
)
def test_damaged_files_raise_nothing(tmp_path_factory, place, damage, end):
    path = tmp_path_factory.getbasetemp() / "damaged.dll"
    path.write_bytes((WHOLE[:place] + damage + WHOLE[place + len(damage) :])[:end])
    assert isinstance(read_pe(str(path)).imports, tuple)
    assert isinstance(functions_lacking(str(path), str(path)), list)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows' own folders count there")
def test_would_it_load(tmp_path):
    def cause(name, **what):
        (tmp_path / name).write_bytes(pe_file(**what))
        return check_extension(tmp_path / name).cause

    assert cause("a.cp311-win_amd64.pyd", imports=LOCKS) == "unknown"
    assert cause("a.cp311-win_amd64.pyd", machine=0xAA64) == "wrong-machine"
    assert cause("a.cp311-win_amd64.pyd", imports={"python312.dll": ()}) == "python-abi"
    (tmp_path / "msvcp140.dll").write_bytes(pe_file(version=(14, 26, 0, 0)))
    assert cause("a.dll", imports=LOCKS) == "older-library"
    (tmp_path / "msvcp140.dll").write_bytes(pe_file(machine=0x14C))
    assert cause("a.dll", imports=LOCKS) == "wrong-machine"
