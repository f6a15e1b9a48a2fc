"""The loader's list and the mapped images: right on this process, an OSError on damaged ones."""

from __future__ import annotations

import gc
import importlib
import mmap
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux"
    or platform.machine() not in ("x86_64", "aarch64")
    or not platform.libc_ver()[0].startswith("glibc"),
    reason="the list is read on x86-64 and AArch64 with glibc only",
)
ctypes = pytest.importorskip("ctypes")

from cudaguard.elf import process, reader  # noqa: E402
from cudaguard.elf.process import (  # noqa: E402
    Image,
    Library,
    Memory,
    entries,
    mapped_libraries,
)
from cudaguard.elf.symbols import SharedObject, Wanted  # noqa: E402

PAGE = mmap.PAGESIZE
needs_readelf = pytest.mark.skipif(shutil.which("readelf") is None, reason="there are no binutils")


@pytest.fixture(scope="module")
def memory():
    with Memory() as memory:
        yield memory


def libraries() -> list[Library]:
    """The libraries of this process that are files, the program included."""
    program, *others = mapped_libraries()
    files = [one._replace(path=one.file) for one in others if os.path.exists(one.path)]
    return [program._replace(path=os.path.realpath(sys.executable)), *files]


def mapped_files() -> dict[str, int]:
    """The ELF files in ``/proc/self/maps`` that code is mapped from -> their lowest address."""
    lowest, with_code = {}, set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, flags, _, _, _, *path = line.split(maxsplit=5)
        if path and path[0].startswith("/"):
            start = int(area.partition("-")[0], 16)
            lowest[path[0]] = min(start, lowest.get(path[0], start))
            if "x" in flags:
                with_code.add(path[0])
    return {path: lowest[path] for path in with_code}


# --- this process --------------------------------------------------------------------------------


def test_list_agrees_with_the_mapped_files():
    for name in ("ssl", "sqlite3"):  # a few more libraries
        importlib.import_module(name)
    found = {library.path: library.base for library in libraries()}
    mapped = mapped_files()
    assert set(found) == set(mapped)
    # A program that lies where its file says has the base 0.
    assert all(mapped[path] == base or base == 0 for path, base in found.items())


def test_program_comes_first_and_a_new_library_last(tmp_path):
    before = mapped_libraries()
    assert before[0].path == ""
    copy = shutil.copy(pytest.importorskip("_ctypes").__file__, tmp_path / "copied.so")
    handle = ctypes.CDLL(str(copy))._handle
    try:
        after = mapped_libraries()
        assert after[: len(before)] == before
        assert after[len(before) :][0].file == os.path.realpath(copy)
    finally:
        ctypes.pythonapi.dlclose(ctypes.c_void_p(handle))
    assert mapped_libraries() == before


def readelf(*arguments: str) -> str:
    command = ["readelf", "--wide", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@needs_readelf
def test_images_agree_with_readelf(memory):
    seen = libraries()
    assert len(seen) > 3
    for library in seen:
        read, told = Image(memory, library), readelf("--dynamic", library.path)
        lines = {
            tag: [
                line.split("[")[1].rstrip("]") for line in told.splitlines() if f"({tag})" in line
            ]
            for tag in ("NEEDED", "SONAME")
        }
        assert list(read.needed) == lines["NEEDED"], library
        assert [read.soname] == (lines["SONAME"] or [""]), library
        assert (reader.DT_GNU_HASH in read.tags) is ("(GNU_HASH)" in told)


@needs_readelf
def test_symbols_agree_with_readelf(memory):
    for library in libraries():
        # Without the word for how a function is called on AArch64.
        text = readelf("--dyn-syms", library.path).replace("[VARIANT_PCS]", "")
        rows = [
            line.split()
            for line in text.splitlines()
            if line.split()[:1] and line.split()[0].rstrip(":").isdigit()
        ]
        names = [name.decode() for name in SharedObject(Image(memory, library)).names()]
        # An object that defines nothing may have more of them than its hash table tells.
        assert len(names) == len(rows) or all("UND" in row for row in rows), library
        # A section has no name of its own; newer tools show that of its header.
        told = [
            row[7].partition("@")[0] if len(row) > 7 and row[3] != "SECTION" else "" for row in rows
        ]
        assert names == told[: len(names)], library


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="tracks every dictionary")
def test_garbage_collector_passes_hashes_over(memory):
    """TensorFlow has 470,000, and each collection would look at them all."""
    for library in libraries():
        (numbers,) = gc.get_referents(SharedObject(Image(memory, library)).codes())
        assert not gc.is_tracked(numbers), library


def test_library_that_the_kernel_maps_has_file_addresses(memory):
    """The loader cannot write into the vdso, and leaves the addresses in it as they are."""
    for library in mapped_libraries():
        if os.path.basename(library.path).startswith("linux-vdso"):
            assert b"__vdso_clock_gettime" in SharedObject(Image(memory, library)).names()
            return
    pytest.skip("this kernel maps no vdso")


# --- memory --------------------------------------------------------------------------------------


@pytest.fixture
def one_page():
    """The address of a page behind which there is nothing."""
    program = ctypes.pythonapi
    kinds = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    program.mmap.argtypes, program.mmap.restype = kinds, ctypes.c_void_p
    program.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    bits = mmap.PROT_READ | mmap.PROT_WRITE
    start = program.mmap(None, 2 * PAGE, bits, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert program.munmap(start + PAGE, PAGE) == 0
    yield start
    program.munmap(start, PAGE)


NOWHERE = [0, 1, 8, -1, -(2**63), 2**47, 2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64, 2**200]


@pytest.mark.parametrize("address", NOWHERE, ids=hex)
def test_what_is_not_mapped_is_an_error(memory, address):
    for read in (memory.number, memory.text, lambda at: memory.read(at, 4)):
        with pytest.raises(OSError, match=r".+"):
            read(address)
    with pytest.raises(OSError, match=r".+"):
        memory.some(address, 4)


def test_text_up_to_the_end_of_what_is_mapped(memory, one_page):
    end = one_page + PAGE
    ctypes.memmove(end - 8, b"text\0end", 8)
    assert memory.text(end - 8) == b"text"
    with pytest.raises(OSError, match=r".+"):
        memory.read(end - 8, 2**62)
    assert memory.some(end - 3, 100) == b"end"
    assert memory.read(end - 3, 3) == b"end"
    for read in (memory.text, memory.number, lambda at: memory.read(at, 4)):
        with pytest.raises(OSError, match=r".+"):
            read(end - 3)


# --- damaged memory ------------------------------------------------------------------------------


class Snapshot(Memory):
    """Parts of a process, as they were and with damages; all else is unmapped."""

    def __init__(self, parts: dict[int, bytes]) -> None:
        self.parts = {start: bytearray(data) for start, data in parts.items()}
        self.longest = 0

    def some(self, address: int, length: int) -> bytes:
        if not (0 <= address < 2**63 and 0 <= length < 2**62):  # what pread() takes
            raise OSError(14, "Bad address")
        self.longest = max(self.longest, length)
        found = (
            bytes(data[address - start : address - start + length])
            for start, data in self.parts.items()
            if start <= address < start + len(data)
        )
        try:
            return max(found, key=len)
        except ValueError:
            raise OSError(5, "Input/output error") from None

    def damage(self, address: int, value: int) -> None:
        """Write a word, in every part that has some of it."""
        for start, data in self.parts.items():
            for at, byte in enumerate(value.to_bytes(8, "little"), address - start):
                if 0 <= at < len(data):
                    data[at] = byte


def parts_of(memory: Memory, library: Library) -> dict[int, bytes]:
    """Everything that the readers look at in a library."""
    read = Image(memory, library)
    symbols, count = read.address(reader.DT_SYMTAB), len(SharedObject(read).names())
    strings = read.address(reader.DT_STRTAB)
    hashes = read.address(reader.DT_GNU_HASH) or read.address(reader.DT_HASH)
    return {
        library.base: memory.read(library.base, 1024),
        library.dynamic: memory.read(library.dynamic, 1024),
        symbols: memory.read(symbols, count * reader.SYMBOL),
        strings: memory.some(strings, read.value(reader.DT_STRSZ) + PAGE),
        hashes: memory.read(hashes, 2048),
    }


def everything(snapshot: Snapshot, library: Library) -> list[object]:
    """What all readers say of a library; an OSError from one of them is an answer."""
    answers: list[object] = []
    try:
        read = Image(snapshot, library)
    except OSError as error:
        return [error]
    for ask in (
        lambda: read.needed,
        lambda: read.soname,
        lambda: SharedObject(read).names(),
        lambda: SharedObject(read).defines(Wanted(b"free")),
        lambda: SharedObject(read).codes(),
        lambda: SharedObject(read).references_to_itself,
        lambda: SharedObject(read).wanted(),
    ):
        try:
            answers.append(ask())
        except OSError as error:
            answers.append(error)
    return answers


@pytest.fixture(scope="module")
def small(memory):
    """A small library of this process."""
    images = [Image(memory, library) for library in libraries() if library.base]
    return min(images, key=lambda read: len(SharedObject(read).names())).library


def test_snapshot_says_what_the_process_says(memory, small):
    parts = parts_of(memory, small)
    answers = everything(Snapshot(parts), small)
    assert not any(isinstance(answer, OSError) for answer in answers)
    assert answers == everything(memory, small)


ODD = [0, 1, 2, 16, 2**20, 2**24, 2**24 + 1, 2**31, 2**32 - 1, 2**40, 2**47, 2**63 - 1, 2**63]


def test_dynamic_section_without_an_end_is_an_error(memory, small):
    tags = b"".join(n.to_bytes(8, "little") for n in range(1, 1 << 14))
    with pytest.raises(OSError, match="its dynamic section has no end"):
        Image(Snapshot({small.dynamic: tags}), small)
    with pytest.raises(OSError, match="its dynamic section has no end"):
        Image(Snapshot({small.dynamic: tags[:40]}), small)  # no whole tag is left


# Entries of a list are 32 bytes: base, name, dynamic section, next entry.
LIST, NAMES = 0x10000, 0x20000


def walk(*parts: tuple[int, bytes]) -> list[Library]:
    """Walk a list in a memory of these parts."""
    return [library for _, library in entries(Snapshot(dict(parts)), LIST)]


def packed(*numbers: int) -> bytes:
    return b"".join(one.to_bytes(8, "little") for one in numbers)


def test_list_that_goes_round_in_circles_ends():
    names = b"/one\0/two\0".ljust(PAGE, b"\0")
    circle = packed(1, NAMES, 11, LIST + 32, 2, NAMES + 5, 22, LIST)
    found = walk((LIST, circle), (NAMES, names))
    assert found == [Library("/one", 1, 11), Library("/two", 2, 22)]
    assert walk((LIST, packed(1, 0, 11, LIST))) == [Library("", 1, 11)]


def test_list_without_an_end_ends():
    """Entries that overlap, each eight bytes behind the one before."""
    numbers = packed(*(LIST + 8 * n for n in range(-2, 1 << 17)))
    assert len(walk((LIST, numbers), (LIST - 2**12, b"\0" * 2**12))) == process.MOST_LIBRARIES


@pytest.mark.parametrize("value", [*ODD, 2**64 - 1], ids=hex)
def test_any_damaged_word_is_an_os_error_or_an_answer(memory, small, value):
    """Of the ELF header and the program headers, the dynamic section and the hash table."""
    parts = parts_of(memory, small)
    hashes = Image(memory, small).address(reader.DT_GNU_HASH)
    for start, size, step in ((small.base, 900, 8), (small.dynamic, 700, 8), (hashes, 700, 4)):
        for place in range(0, min(size, len(parts[start])), step):
            snapshot = Snapshot(parts)
            snapshot.damage(start + place, value)
            everything(snapshot, small)
            assert snapshot.longest <= 1 << 30
