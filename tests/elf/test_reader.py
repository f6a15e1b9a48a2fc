"""The ELF reader: right on real files, and never more than an empty answer on damaged ones."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaguard.elf.reader import Elf, read_elf

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or sys.byteorder != "little" or sys.maxsize < 2**32,
    reason="the reader is for 64-bit little-endian ELF files",
)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils are not installed")
def test_agrees_with_readelf_on_the_extensions_of_this_interpreter():
    folder = Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    files = [*sorted(folder.glob("*.so"))[:40], *Path(sys.prefix).rglob("numpy/**/*.so")]
    assert files or sysconfig.get_config_var("Py_DEBUG") is not None
    for file in files:
        told = subprocess.run(
            ["readelf", "-d", "-W", file], capture_output=True, text=True, check=True
        ).stdout
        expected = [
            line.split("[")[1].rstrip("]") for line in told.splitlines() if "NEEDED" in line
        ]
        assert list(read_elf(str(file)).needed) == expected, file


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x7fELF",
        b"\x7fELF\x01\x01" + bytes(100),  # 32 bit
        b"\x7fELF\x02\x02" + bytes(100),  # big-endian
        b"#!/bin/sh\n" + bytes(100),
        b"\x7fELF\x02\x01" + b"\xff" * 200,
    ],
)
def test_what_is_no_such_file_needs_nothing(tmp_path, content):
    (tmp_path / "odd.so").write_bytes(content)
    assert read_elf(str(tmp_path / "odd.so")) == Elf()


@pytest.mark.parametrize("path", ["missing.so", ".", "nul\0byte", "/dev/null", ""])
def test_what_cannot_be_read_needs_nothing(path):
    assert read_elf(path) == Elf()


# --- a C++ runtime of its own --------------------------------------------------------------------

FORMATS_NUMBERS = """
#include <sstream>
extern "C" int length(double number) {
    std::ostringstream text;
    text << number;
    return static_cast<int>(text.str().size());
}
"""
STATIC = ("-static-libstdc++", "-static-libgcc")
NUMPUT = "_ZNSt7num_putIcSt19ostreambuf_iteratorIcSt11char_traitsIcEEE2idE"


@pytest.fixture(scope="session")
def formats(cxx):
    """Returns a C++ library linked with some flags."""
    return lambda *flags: cxx.library("formats.so", FORMATS_NUMBERS, *flags)


@pytest.mark.parametrize("hashes", ["gnu", "both"])
def test_runtime_of_its_own_that_everybody_sees(formats, hashes):
    library = formats(*STATIC, f"-Wl,--hash-style={hashes}")
    assert "libstdc++.so.6" not in read_elf(str(library)).needed
    names = read_elf(str(library)).runtime
    assert NUMPUT in names
    assert len(set(names)) == len(names) > 20
    assert all(name.startswith("_ZNSt") and name.endswith("2idE") for name in names)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils are not installed")
def test_exported_runtime_agrees_with_readelf(formats):
    library = formats(*STATIC)
    command = ["readelf", "--dyn-syms", "--wide", library]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in told.splitlines() if " UNIQUE " in line]
    ids = [row[7] for row in rows if row[7].startswith("_ZNSt") and row[7].endswith("2idE")]
    assert sorted(read_elf(str(library)).runtime) == sorted(ids)
    assert len(rows) > len(ids)  # there are unique objects of other names


@pytest.mark.parametrize(
    "flags",
    [
        (),
        (*STATIC, "-Wl,--exclude-libs,ALL"),
        (*STATIC, "-Wl,--exclude-libs,libstdc++.a"),
        ("-static-libgcc",),
    ],
    ids=" ".join,
)
def test_runtime_that_is_shared_or_hidden(formats, flags):
    assert read_elf(str(formats(*flags))).runtime == ()


def test_truncated_file_never_raises(formats, tmp_path):
    library = formats(*STATIC)
    whole = library.read_bytes()
    short = tmp_path / "short.so"
    for length in [*range(256), *range(256, 4096, 61), *range(4096, len(whole), len(whole) // 150)]:
        short.write_bytes(whole[:length])
        assert read_elf(str(short)) in (Elf(), Elf(is_truncated=True), read_elf(str(library)))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_files_never_raise(formats, tmp_path_factory, data):
    content = bytearray(formats(*STATIC).read_bytes())
    size = len(content)
    dynamic, hashes = _places(content)
    for _ in range(data.draw(st.integers(1, 6))):
        # Where it hurts: header and program headers, tags, the head of the hash table.
        start, length = data.draw(
            st.sampled_from([(0, 700), (dynamic, 512), (hashes, 64), (0, size - 8)])
        )
        place = start + data.draw(st.integers(0, length - 1))
        value = data.draw(
            st.sampled_from([0, 1, 2**20, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
            | st.integers(0, 2**64 - 1)
        )
        struct.pack_into("<Q", content, place, value)
    damaged = tmp_path_factory.getbasetemp() / "damaged.so"
    damaged.write_bytes(content)
    assert sum(map(len, read_elf(str(damaged)).needed)) < 2**23


def _places(content: bytes) -> tuple[int, int]:
    """Where the dynamic section and the hash table lie in a file."""
    table, count = struct.unpack_from("<Q", content, 32)[0], content[56]
    heads = (struct.unpack_from("<IIQ", content, table + 56 * n) for n in range(count))
    (dynamic,) = [offset for kind, _, offset in heads if kind == 2]
    tags = dict(struct.unpack_from("<QQ", content, dynamic + 16 * n) for n in range(20))
    return dynamic, tags[0x6FFFFEF5]  # it lies in the first segment, where addresses are places
