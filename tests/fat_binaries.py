"""Libraries with fat binaries, laid out as nvcc does, for tests without nvcc."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from .features.extensions.conftest import Builder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MAGIC, RECORD_MAGIC = 0xBA55ED50, 0x466243B1
KINDS = {"compute": 1, "sm": 2, "odd": 64}
LETTERS = {"": 0, "a": 1 << 20, "f": 1 << 21}
COMPRESSED = 1 << 15
SECTION = """
__asm__(".section {name},\\"a\\"\\n.balign 8\\n.incbin \\"{file}\\"\\n.previous");
"""


def image(flag: str, content: bytes = bytes(40)) -> bytes:
    """Return one image, as in ``sm_90a`` or ``compute_80``."""
    kind, number, letter = re.fullmatch(r"([a-z]+)_(\d+)([af]?)", flag).groups()
    version = (8, 4) if kind == "compute" else (1, 8)
    options = 0x11 | COMPRESSED | LETTERS[letter]
    header = struct.pack("<HHIQII", KINDS[kind], 0x101, 64, len(content), len(content) - 3, 64)
    header += struct.pack("<HHIIIQQQ", version[1], version[0], int(number), 0, 0, options, 0, 99)
    return header + content


def binary(*flags: str) -> bytes:
    """Return a fat binary with an image for each architecture."""
    images = b"".join(image(flag) for flag in flags)
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(images)) + images


def source(folder: Path, linked: Sequence[bytes], to_link: Sequence[bytes] = (),
           versions: Sequence[int] | None = None) -> str:  # fmt: skip
    """Return C source that puts fat binaries into their sections."""
    versions = [1] * len(linked) if versions is None else versions  # 2 for the device linker
    parts = {
        ".nv_fatbin": b"".join(linked),
        "__nv_relfatbin": b"".join(to_link),
        ".nvFatBinSegment": b"".join(struct.pack("<IIQQ", RECORD_MAGIC, n, 0, 0) for n in versions),
    }
    text = ""
    for name, content in parts.items():
        if content:
            file = folder / f"{name.strip('._')}.bin"
            file.write_bytes(content)
            text += SECTION.format(name=name, file=file)
    return text


def library(path: Path, *flags: str) -> Path:
    """Compile a library whose one fat binary has these; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return compiled(path, source(path.parent, [binary(*flags)]))


def compiled(path: Path, text: str) -> Path:
    """Compile a library."""
    return Builder(path.parent)(path.name, f"{text}\nint nothing(void) {{ return 0; }}\n")
