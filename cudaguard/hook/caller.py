"""Which line of the user's code is behind what is happening now?"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_OURS = __file__[: -len("hook/caller.py")]
# The import machinery and ctypes stand between the user's statement and us.
_BETWEEN = ("<frozen importlib", "<frozen zipimport")
_BETWEEN_MODULES = ("importlib", "ctypes", "runpy")


def caller_frame() -> FrameType | None:
    """Return the innermost frame that is neither ours nor the import system's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_BETWEEN) and not file.startswith(_OURS):
            module = frame.f_globals.get("__name__")
            if not (isinstance(module, str) and module.partition(".")[0] in _BETWEEN_MODULES):
                return frame
        frame = frame.f_back
    return None


def describe(frame: FrameType | None) -> str:
    """Return ``file:line`` of a frame, or an empty string for none."""
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
