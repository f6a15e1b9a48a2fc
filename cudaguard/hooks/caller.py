"""Finds the line of the user's code that is behind what is happening now, and hides our frames."""

from __future__ import annotations

import _thread
import sys

from cudaguard import elf, system
from cudaguard.kernel import FOLDER, TRACEBACK, hide_frame, of_import_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType, TracebackType

__all__ = ("hide_frame", "of_import_system")  # handed on

# We, the import machinery and ctypes stand between the user's statement and here.
_FILES_BETWEEN = (FOLDER, "<frozen importlib", "<frozen zipimport")
_OF_STATEMENTS = ("_find_and_load", "_handle_fromlist")  # of importlib: what statements call
# True in a module of ours whose import statements are the program's: of prerequisites.
_FOR_THE_PROGRAM = "IMPORTS_FOR_THE_PROGRAM"
# Ours that call others for facts. The rest calls code of the program, or stands in for it.
_FOR_OURSELVES = (f"{elf.__name__}.", f"{system.__name__}.")
_INTERPRETERS = ("_interpreters", "_xxsubinterpreters")  # who has imported neither has one
_MODULES_BETWEEN = (
    *("importlib", "contextlib", "ctypes", "os", "collections", "runpy", "site"),
    "_cudaguard_boot",
)


def caller_frame() -> FrameType | None:
    """Return the innermost frame that is neither ours nor the import system's."""
    return _outside(sys._getframe(1), _MODULES_BETWEEN)


def frame_outside(frame: FrameType | None) -> FrameType | None:
    """Return the frame whose code, outside the package that `frame` belongs to, led there."""
    package = module_of(frame).partition(".")[0]
    return _outside(frame, (*_MODULES_BETWEEN, package)) if package else None


def frame_outside_of(module: str) -> FrameType | None:
    """Return the frame that led into a module: of its import statement, if its code is running.

    Else the innermost that is neither ours nor the import system's nor of the module's package; if
    there is none, the package's own.
    """
    frame = frame_running(module) or caller_frame()
    if module_of(frame).partition(".")[0] == module.partition(".")[0]:
        return frame_outside(frame) or frame
    return frame


def frame_running(module: str, function: str = "<module>") -> FrameType | None:
    """Return the innermost frame that runs a function of a module, or the module's own code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_name != function or module_of(frame) != module):
        frame = frame.f_back
    return frame


def may_look_at_threads() -> bool:
    """Return True if ``sys._current_frames`` is safe: if there is no other interpreter.

    It makes objects of their frames too, in the memory of the asking one. Since Python 3.12 each
    may have its own, and the process crashes when the frame ends.
    """
    is_main = getattr(_thread, "_is_main_interpreter", None)
    return is_main is None or (is_main() and not any(n in sys.modules for n in _INTERPRETERS))


def _outside(frame: FrameType | None, packages: tuple[str, ...]) -> FrameType | None:
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_FILES_BETWEEN):
            module = frame.f_globals.get("__name__")
            if not (isinstance(module, str) and module.partition(".")[0] in packages):
                return frame
        frame = frame.f_back
    return None


def is_between(frame: FrameType) -> bool:
    """Return True if a frame is ours or the import system's."""
    return frame.f_code.co_filename.startswith(_FILES_BETWEEN)


# Code and place of the last `with` statements of our own blocks.
own_blocks: list[tuple[CodeType, int]] = []
_MOST_BLOCKS = 50


def note_block(frame: FrameType) -> None:
    """Remember a `with` of ours, which keeps no error from the program."""
    own_blocks.append((frame.f_code, frame.f_lasti))
    del own_blocks[:-_MOST_BLOCKS]


def is_outermost(frame: FrameType) -> bool:
    """Return True for the code that Python runs as the program."""
    name, function = module_of(frame), frame.f_code.co_name
    is_runpy = name == "runpy" and function == "_run_module_as_main"
    return is_runpy or (name == "__main__" and function == "<module>")


def module_of(frame: FrameType | UserLine | None) -> str:
    """Return the name of the module whose code runs in a frame, empty if it has none."""
    name = frame.f_globals.get("__name__") if frame is not None else None
    return name if isinstance(name, str) else ""


def entries_of(error: BaseException) -> Iterator[TracebackType]:
    """Yield the entries of an error's traceback, outermost first."""
    entry = TRACEBACK.__get__(error)
    while entry is not None:
        yield entry
        entry = entry.tb_next


def importing() -> list[str]:
    """Return the modules whose code this thread is running, outermost first.

    Where we import something, or have others do so, for our own use, we stand there as
    ``cudaguard``.
    """
    found = []
    is_outside = is_imported = False  # have we left our own code; was there an import statement?
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, module = frame.f_code, module_of(frame)
        is_statement = module.endswith(".own_imports")  # of the module behind it
        if code.co_filename.startswith(_FILES_BETWEEN[0]) and not is_statement:
            if frame.f_globals.get(_FOR_THE_PROGRAM):
                is_outside = False
            elif is_imported or (is_outside and module.startswith(_FOR_OURSELVES)):
                found.append("cudaguard")
        elif not code.co_filename.startswith(_FILES_BETWEEN):
            is_outside = True
        if code.co_name == "<module>":
            found.append(module)
        is_imported = code.co_name in _OF_STATEMENTS or (is_imported and is_statement)
        frame = frame.f_back
    return found[::-1]


def is_importing() -> bool:
    """Return True if an import statement of this thread is under way."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class UserLine:
    """File, line and module of a frame, without the variables that the frame keeps alive."""

    __slots__ = ("f_code", "f_globals", "f_lineno")

    def __init__(self, frame: FrameType) -> None:
        self.f_code = frame.f_code
        self.f_lineno = frame.f_lineno
        self.f_globals = {"__name__": frame.f_globals.get("__name__")}


def describe(frame: FrameType | UserLine | None) -> str:
    """Return ``file:line`` of a frame, or an empty string for none."""
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def describe_line(traceback: TracebackType) -> str:
    """Return ``file:line`` of an entry of a traceback, whose frame may have gone on."""
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
