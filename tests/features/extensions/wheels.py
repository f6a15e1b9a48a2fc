"""Wheels with real extensions, as build backends make them."""

from __future__ import annotations

import base64
import hashlib
import sys
import sysconfig
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PYTHON = f"cp{sys.version_info[0]}{sys.version_info[1]}"
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
HERE = f"{PYTHON}-{PYTHON}{sys.abiflags}-{PLATFORM}"


def wheel(folder: Path, files: Mapping[str, Path | bytes], tags: str = HERE,
          name: str = "half_ext") -> Path:  # fmt: skip
    """Write a wheel with files, each a path or its content; return its path."""
    info = f"{name}-1.0.dist-info"
    contents = {place: one if isinstance(one, bytes) else one.read_bytes()
                for place, one in files.items()}  # fmt: skip
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    contents[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tags}\n".encode()
    )
    lines = [f"{place},sha256={_digest(data)},{len(data)}" for place, data in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{name}-1.0-{tags}.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, data in contents.items():
            archive.writestr(place, data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
