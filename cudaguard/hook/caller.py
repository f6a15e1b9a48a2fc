"""Which line of the user's code is behind what is happening now?"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

# We, the import machinery and ctypes stand between the user's statement and here.
_FILES_BETWEEN = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    "<frozen importlib",
    "<frozen zipimport",
)
_MODULES_BETWEEN = ("importlib", "ctypes", "runpy", "site", "_cudaguard_boot")


def caller_frame() -> FrameType | None:
    """Return the innermost frame that is neither ours nor the import system's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_FILES_BETWEEN):
            module = frame.f_globals.get("__name__")
            if not (isinstance(module, str) and module.partition(".")[0] in _MODULES_BETWEEN):
                return frame
        frame = frame.f_back
    return None


def describe(frame: FrameType | None) -> str:
    """Return ``file:line`` of a frame, or an empty string for none."""
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
