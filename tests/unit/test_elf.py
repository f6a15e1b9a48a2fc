"""The ELF reader: right on real files, and never more than an empty answer on damaged ones."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaguard.probe.elf import needed_libraries

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or sys.byteorder != "little" or sys.maxsize < 2**32,
    reason="the reader is for 64-bit little-endian ELF files",
)
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library that needs two others, one of them under a soname of its own."""
    folder = tmp_path_factory.mktemp("elf")
    (folder / "empty.c").write_text("int nothing(void) { return 0; }\n", encoding="utf-8")
    cc = ["cc", "-shared", "-fPIC", "-o"]
    subprocess.run(
        [*cc, "libfirst.so", "-Wl,-soname,libfirst.so.7", "empty.c"], cwd=folder, check=True
    )
    subprocess.run([*cc, "libsecond.so", "empty.c"], cwd=folder, check=True)
    command = [*cc, "whole.so", "empty.c", "-Wl,--no-as-needed", "-L.", "-lfirst", "-lsecond"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "whole.so"


@needs_cc
def test_needed_libraries_come_by_soname_in_order(library):
    found = needed_libraries(str(library))
    assert found[:2] == ("libfirst.so.7", "libsecond.so")
    assert any(name.startswith(("libc.so", "libc.musl")) for name in found)


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
        assert list(needed_libraries(str(file))) == expected, file


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
    assert needed_libraries(str(tmp_path / "odd.so")) == ()


@pytest.mark.parametrize("path", ["missing.so", ".", "nul\0byte", "/dev/null", ""])
def test_what_cannot_be_read_needs_nothing(path):
    assert needed_libraries(path) == ()


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.so")
    assert needed_libraries(str(tmp_path / "pipe.so")) == ()


@needs_cc
def test_truncated_at_every_length_never_raises(library, tmp_path):
    whole = library.read_bytes()
    short = tmp_path / "short.so"
    for length in [*range(256), *range(256, len(whole), 97)]:
        short.write_bytes(whole[:length])
        assert isinstance(needed_libraries(str(short)), tuple)


@needs_cc
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_files_never_raise(library, tmp_path_factory, data):
    content = bytearray(library.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        # Mostly where it hurts: header and program headers.
        place = data.draw(st.integers(0, 700) | st.integers(0, len(content) - 9))
        value = data.draw(
            st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
        )
        struct.pack_into("<Q", content, place, value)
    damaged = tmp_path_factory.getbasetemp() / "damaged.so"
    damaged.write_bytes(content)
    found = needed_libraries(str(damaged))
    assert isinstance(found, tuple)
    assert sum(map(len, found)) < 2**23
