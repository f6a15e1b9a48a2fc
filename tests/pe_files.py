"""Windows libraries of a few bytes: headers, imports and a version, and no code."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOCKS = {"MSVCP140.dll": ("_Mtx_lock", "_Mtx_unlock")}  # as torch 2.9's c10.dll
_BASE = 0x1000  # address of the only section


def pe_file(
    *,
    version: Sequence[int] = (),
    imports: Mapping[str, Sequence[str]] | None = None,
    exports: Sequence[str] = (),
    linker: tuple[int, int] = (14, 42),
    machine: int = 0x8664,
) -> bytes:
    """Return a library for 64 bits."""
    data = bytearray()

    def put(part: bytes) -> int:
        data.extend(part + b"\0" * (-len(part) % 8))
        return _BASE + len(data) - len(part) - (-len(part) % 8)

    rows = b""
    for library, functions in (imports or {}).items():
        names = [put(b"\0\0" + function.encode() + b"\0") for function in functions]
        table = put(pack(f"<{len(names) + 1}Q", *names, 0))
        rows += pack("<5L", table, 0, 0, put(library.encode() + b"\0"), table)
    imported = put(rows + bytes(20)) if rows else 0
    names = [put(name.encode() + b"\0") for name in exports]
    count, table = len(names), put(pack(f"<{len(names)}L", *names))
    exported = put(pack("<10L", 0, 0, 0, 0, 1, count, count, 0, table, 0)) if names else 0
    resources = 0
    if version:
        fixed = pack("<2L4H", 0xFEEF04BD, 0x10000, version[1], version[0], version[3], version[2])
        info = put(b"V" * 40 + fixed + bytes(40))
        levels = (1 << 31 | 24, 1 << 31 | 48, 72)  # of type, name and language: a row of each
        rows = b"".join(pack("<3L2H2L", 0, 0, 0, 0, 1, 16, level) for level in levels)
        resources = put(rows + pack("<4L", info, 92, 0, 0))
    directories = pack("<6L", exported, 40, imported, 20, resources, 16).ljust(128, b"\0")
    optional = pack("<H2B", 0x20B, *linker).ljust(108, b"\0") + pack("<L", 16) + directories
    section = pack("<8s4L", b".rdata", len(data), _BASE, len(data), 0x200).ljust(40, b"\0")
    head = pack("<4s2H3L2H", b"PE\0\0", machine, 1, 0, 0, 0, len(optional), 0x2022)
    dos = b"MZ".ljust(60, b"\0") + pack("<L", 64)
    return (dos + head + optional + section).ljust(0x200, b"\0") + bytes(data)
