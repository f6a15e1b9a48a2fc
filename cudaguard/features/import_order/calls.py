"""Looks at the first call of a function that belongs before an import: what is set up then stays.

The call is made as ever, and what it raises is its own.
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType, ModuleType

from cudaguard.core.repairs import Done, WouldDo
from cudaguard.core.replace import FunctionStandIn, preceded
from cudaguard.core.rule import actions_of, texts_of
from cudaguard.files import os
from cudaguard.hooks.barrier import ask
from cudaguard.hooks.caller import describe, frame_outside_of, hide_frame
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from cudaguard.core.repairs import Outcome, Request
    from cudaguard.core.replace import ReplacedPlace
    from cudaguard.core.rule import Permit

_WINDOWS = ("imshow", "namedWindow", "selectROI", "selectROIs")  # which OpenCV opens
_OTHER_QT = ("PyQt5", "PySide2")  # read the same variable, for a Qt of their own


def _watch_calls(request: Request, function: str, look: Callable[[], object]) -> None:
    """Have a function looked at before its first call, where it is there."""
    owner, name = _place(request.name, function)
    if owner is None:
        return
    original = getattr(owner, name)
    is_awaited = [True]

    def before(*_: object) -> None:
        if is_awaited and request.permit.looks:
            is_awaited.clear()  # a call that the look itself makes is not looked at
            ask(request.reporter, "looking at a call", look, prints=True)

    ours = _like(original, preceded(original, before))
    place = f"{request.name}.{function} ({request.rule.id})"
    request.replacements.put(request, place, owner, name, lambda *_: ours)


def _like(original: Any, call: Callable[..., Any]) -> Any:
    """Return what looks like a function, and makes a call instead."""
    return call if isinstance(original, FunctionType) else FunctionStandIn(original, call)


def _place(module: str, path: str) -> tuple[Any, str]:
    """Return whose attribute a function is, and which; None if there is no such function."""
    owner: Any = sys.modules.get(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part, None)
    found = getattr(owner, name, None)
    if isinstance(found, type):  # a class stays the class that it is
        is_pythons = isinstance(vars(found).get("__init__"), FunctionType)
        return (found, "__init__") if is_pythons else (None, "")
    return (owner, name) if callable(found) else (None, "")


def check_calls(request: Request) -> None:
    """Have the calls that a rule names looked at, where they are there."""
    for action in actions_of(request.rule, "check_call"):
        _watch_calls(request, action["check_call"], functools.partial(_tell, request, action))


def _tell(request: Request, action: Mapping[str, Any]) -> None:
    """Tell of a call, if one of the modules that it belongs before is there."""
    before = [name for name in texts_of(action["before"]) if name in sys.modules]
    if before:
        frame = frame_outside_of(request.name.partition(".")[0])
        call = f"{request.name}.{action['check_call']}"
        # Modules outside of its package that have the first, or a part of it, as a variable.
        package, start = before[0].partition(".")[0], f"{before[0]}."
        users = [
            name
            for name, module in list(sys.modules.items())
            if type(module) is ModuleType and name.partition(".")[0] != package
            for value in list(vars(module).values())
            if type(value) is ModuleType and f"{value.__name__}.".startswith(start)
        ]
        from cudaguard.features.import_order import findings

        where = describe(frame)
        finding = findings.called_too_late(
            request.rule, call, before, where, [*dict.fromkeys(users)]
        )
        request.tell(WouldDo(finding), frame)


def set_for_windows(request: Request) -> Iterator[Outcome]:
    """Have a variable that OpenCV sets for its Qt set only while it opens its first window.

    Where another Qt of its kind is installed, which would load OpenCV's plugins, and end there.
    """
    module, variable = sys.modules[request.name], request.values[0]
    value = os.environ.get(variable, "")
    folder = os.path.dirname(getattr(module, "__file__", None) or "")
    there = (os.path.exists(f"{one or '.'}/{qt}") for one in sys.path for qt in _OTHER_QT)
    is_own = request.permit.acts and folder and value.startswith(f"{folder}{os.sep}")
    if not is_own or not any(there):
        return
    is_needed = [True]

    def make(function: str, place: ReplacedPlace, permit: Permit) -> Any:
        original = getattr(module, function)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_set = permit.acts and is_needed and variable not in os.environ
            if is_set:
                os.environ[variable] = value
            try:
                result = original(*args, **kwargs)
                is_needed.clear()
                return result
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                if is_set:
                    os.environ.pop(variable, None)

        place.undone = lambda: os.environ.setdefault(variable, value)
        return _like(original, call)

    for function in _WINDOWS:
        if hasattr(module, function):
            place = f"{request.name}.{function} ({request.rule.id})"
            make_it = functools.partial(make, function)
            request.replacements.put(request, place, module, function, make_it)
    del os.environ[variable]
    yield Done(variable, "set only while OpenCV opens its first window", stays=False)
