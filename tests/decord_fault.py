"""Where decord's fault can be shown: not in a Python whose own executable is linked against zlib.

That copy is first in the global symbol scope, before decord's, as in Debian's Python 3.14 and 3.15.
"""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

DECODE = """
    import cv2, numpy
    image = (numpy.arange(64 * 64 * 3) % 251).astype("u1").reshape(64, 64, 3)
    decoded = cv2.imdecode(cv2.imencode(".png", image)[1], 1)
    print("none" if decoded is None else "right" if (decoded == image).all() else "wrong")
"""
ZLIB_IS_FIRST = "zlib is in the global symbol scope of this Python before decord's"

needs_decord = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="decord 0.6.0 exists for x86-64 Linux only",
)


def has_zlib_first() -> bool:
    """Return True if this interpreter, with nothing imported, has zlib in its global scope."""
    code = "import ctypes; ctypes.CDLL(None).inflate"
    command = [sys.executable, "-I", "-c", code]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


needs_fault = pytest.mark.skipif(
    sys.platform.startswith("linux") and has_zlib_first(), reason=ZLIB_IS_FIRST
)
