"""Files that were made to cost hours or gigabytes: one budget of work ends each question soon."""

from __future__ import annotations

import struct
import sys
from platform import machine

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or sys.byteorder != "little" or sys.maxsize < 2**32,
    reason="the reader is for 64-bit little-endian ELF files",
)
MACHINE = {"x86_64": 62, "aarch64": 183}
CODE = """
import cudaguard, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
check = cudaguard.check_extension(sys.argv[1])
print(check.ok, check.cause, check.message[:500])
"""


def shared_object(path, texts=b"", symbols=(), tables=(), tags=()):
    """Write a shared object of one segment; what is needed for an answer, and no more.

    Args:
        path: The file.
        texts: Its string table, behind a first zero byte.
        symbols: Places of names in it, each with True for a definition.
        tables: Tag -> content of further tables.
        tags: Further (tag, value) of the dynamic section.
    """
    entries = [struct.pack("<IBBHQQ", at, 0x12, 0, has, 64 * has, 0) for at, has in symbols]
    parts = {5: b"\0" + texts, 6: bytes(24) + b"".join(entries), **dict(tables)}
    body, dynamic = b"", [(10, 1 + len(texts)), *tags]
    for tag, content in parts.items():
        dynamic.append((tag, 64 + 3 * 56 + len(body)))
        body += content + bytes(-len(content) % 8)
    at = 64 + 3 * 56 + len(body)
    section = b"".join(struct.pack("<QQ", *one) for one in (*dynamic, (0, 0)))
    end = at + len(section)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, MACHINE[machine()], 1, 0, 64, 0, 0, 64, 56, 3, 0, 0, 0
    )
    header += struct.pack("<IIQQQQQQ", 1, 7, 0, 0, 0, end, end, 4096)
    header += struct.pack("<IIQQQQQQ", 2, 6, at, at, at, len(section), len(section), 8)
    # Without this one it asks for an executable stack, which glibc 2.41 and later refuse.
    header += struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)
    path.write_bytes(header + body + section)


def of_one_bucket(first):
    """A hash table of the newer kind in which the symbol `first` is the only definition."""
    return struct.pack("<IIIIQII", 1, first, 1, 0, 2**64 - 1, first, 1)


def long_chains(folder):
    """A library whose names are all in one chain, and another that asks it for 65,000 others."""
    chain = struct.pack("<3I4096I", 1, 4096, 1, 0, *range(2, 4096), 0)
    shared_object(folder / "slow.so", b"x\0", [(1, True)] * 4095, {4: chain}.items())
    names = b"".join(b"w%06x\0" % number for number in range(65_000))
    wanted = [(1 + 8 * number, False) for number in range(65_000)]
    texts = names + b"slow.so\0$ORIGIN\0"
    at = 1 + len(names)
    shared_object(
        folder / "asks.so", texts, [*wanted, (1, True)],
        {0x6FFFFEF5: of_one_bucket(65_001)}.items(),
        [(1, at), (29, at + 8)],
    )  # fmt: skip


def endless_names(folder):
    """Symbols whose names begin one byte apart in 16 MiB without an end."""
    shared_object(
        folder / "asks.so", b"a" * ((1 << 24) - 2), [(1 + n, False) for n in range(20_000)],
        {0x6FFFFEF5: of_one_bucket(20_001)}.items(),
    )  # fmt: skip


def many_folders(folder):
    """Each of 4,000 libraries is looked for in 340 folders."""
    names = b"".join(b"l%05x\0" % number for number in range(4000))
    path = b":".join([b"/a", b"/b"] * 170) + b"\0"
    needed = [(1, 1 + 7 * number) for number in range(4000)]
    shared_object(
        folder / "asks.so", names + path, [(1, True)], {0x6FFFFEF5: of_one_bucket(1)}.items(),
        [*needed, (29, 1 + len(names))],
    )  # fmt: skip


def many_libraries(folder):
    """So many that what says where its symbols are stands behind all that would be read."""
    shared_object(
        folder / "asks.so", b"gone.so\0", [(1, True)], {0x6FFFFEF5: of_one_bucket(1)}.items(),
        [(0x6FFFFFF0, 0)] * 5000 + [(1, 1)],
    )  # fmt: skip


@pytest.mark.parametrize("make", [long_chains, endless_names, many_folders, many_libraries])
def test_question_that_takes_too_much_work_is_given_up(child, make):
    make(child.folder)
    done = child.python(CODE, child.folder / "asks.so", timeout=60)
    assert done.stdout.startswith("None unknown ")
    assert "it is damaged" in done.stdout


@pytest.mark.slow
def test_copies_of_what_a_library_lacks_are_looked_for_so_often_only(child):
    """A load that ends the program: of 4,000 libraries that are lacking, one is installed."""
    tables = {0x6FFFFEF5: of_one_bucket(1)}.items()
    shared_object(child.write("nvidia/a/lib/libcublas.so.12", ""), b"x\0", [(1, True)], tables)
    texts = b"libcublas.so.12\0" + b"".join(b"l%05x\0" % number for number in range(4000))
    needed = [(1, 1), *((1, 17 + 7 * number) for number in range(4000))]
    shared_object(child.folder / "asks.so", texts, [(1, True)], tables, needed)
    for number in range(100):
        child.write(f"d{number}-1.dist-info/RECORD", "x,,\n" * 50_000)
    code = "import cudaguard, ctypes\ncudaguard.install()\nctypes.CDLL('./asks.so')"
    done = child.python(code, env={"PYTHONPATH": str(child.folder)}, check=False, timeout=60)
    assert "cannot open shared object file" in done.stderr
