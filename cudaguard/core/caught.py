"""Whether an error that is raised now would end the program, by what would catch it on the way.

Read from the tables of the frames that are running, which Python 3.11 and later have: CPython's
``InternalDocs/exception_handling.md``.
"""

from __future__ import annotations

import sys

from cudaguard.hooks.caller import caller_frame, is_between, is_outermost, module_of, own_blocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

# They catch any error to show it to the user, for whom it is the end.
_SHOW_ERRORS = ("IPython", "ipykernel", "_pytest", "pluggy", "unittest", "multiprocessing")
_LONGEST_ENTRY = 10  # bytes of code from a call of __enter__ to the body of its `with`


def ends_program() -> bool:
    """Return True if an error that is raised here surely ends the program.

    Where code in C imports modules, it may catch what comes of that: then False, as in any doubt.
    """
    if sys.version_info < (3, 11):
        return False
    frame = caller_frame()
    while frame is not None:
        if module_of(frame).partition(".")[0] in _SHOW_ERRORS:
            return True
        outer = frame.f_back
        if is_between(frame):
            if _is_import_from_c(frame):
                return False
        elif _catches(frame.f_code, frame.f_lasti):
            return False
        elif outer is None:
            return is_outermost(frame)
        frame = outer
    return False


def _is_import_from_c(frame: FrameType) -> bool:
    """Return True if no import statement, and no call in Python, is behind an import."""
    outer = frame.f_back
    if frame.f_code.co_name != "_find_and_load" or outer is None:
        return False
    if outer.f_code.co_name == "_call_with_frames_removed":
        outer = outer.f_back or outer
    return is_between(outer) and outer.f_code.co_name not in ("_gcd_import", "_handle_fromlist")


def _catches(code: CodeType, at: int) -> bool:
    """Return True if a handler around an instruction may keep an error."""
    from opcode import opmap

    entries = list(_entries(code))
    raw = code.co_code

    def handler_of(place: int) -> tuple[int, int]:
        found = [(start, target) for start, end, target in entries if start <= place < end]
        return found[0] if found else (0, 0)

    seen = set()
    start, handler = handler_of(at)
    while handler and handler not in seen:
        seen.add(handler)
        if raw[handler] == opmap["PUSH_EXC_INFO"]:
            if raw[handler + 2] == opmap["WITH_EXCEPT_START"]:
                # The ``with`` of a `guard()` keeps no error.
                if not any(
                    one is code and 0 < start - entered <= _LONGEST_ENTRY
                    for one, entered in own_blocks
                ):
                    return True
            else:
                # A clause that ends without raising takes the error away: nothing is raised then.
                _, cleanup = handler_of(handler)
                for place in range(handler, max(cleanup, handler), 2):
                    is_over = raw[place] == opmap["POP_EXCEPT"]
                    if is_over and raw[place + 2] != opmap["RERAISE"]:
                        return True
                if cleanup < handler:
                    return True
        start, handler = handler_of(handler)
    return False


def _entries(code: CodeType) -> Iterator[tuple[int, int, int]]:
    """Yield first instruction, end, and handler of the ranges of an exception table."""
    numbers = _numbers(code.co_exceptiontable)  # type: ignore[attr-defined]  # 3.11
    for start in numbers:
        length, target, _ = next(numbers), next(numbers), next(numbers)
        yield start * 2, (start + length) * 2, target * 2


def _numbers(table: bytes) -> Iterator[int]:
    number = 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:  # the last part of this one
            yield number
            number = 0
