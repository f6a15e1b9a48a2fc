"""A variable that OpenCV sets for its own Qt, and that another Qt in the process reads as well."""

from __future__ import annotations

import functools
import sys
from types import FunctionType

from cudaguard.core.repairs import Done
from cudaguard.core.replace import FunctionStandIn
from cudaguard.files import os
from cudaguard.hooks.caller import hide_frame
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cudaguard.core.repairs import Outcome, Request
    from cudaguard.core.replace import ReplacedPlace
    from cudaguard.core.rule import Permit

_WINDOWS = ("imshow", "namedWindow", "selectROI", "selectROIs")  # which OpenCV opens
_OTHER_QT = ("PyQt5", "PySide2")  # read the same variable, for a Qt of their own


def set_for_windows(request: Request) -> Iterator[Outcome]:
    """Have a variable that OpenCV sets for its Qt set only while it opens its first window.

    Where another Qt of its kind is installed, which would load OpenCV's plugins, and end there.
    `os.environ` keeps it: what the program does with it is done as ever.
    """
    module, variable = sys.modules.get(request.name), request.values[0]
    value = os.environ.get(variable, "")
    there = (os.path.exists(f"{one or '.'}/{qt}") for one in sys.path for qt in _OTHER_QT)
    # The extension in the package has its name, and is imported first.
    folders = [f"{folder}{os.sep}" for folder in getattr(module, "__path__", ())]
    if not (request.permit.acts and value.startswith((*folders,)) and any(there)):
        return
    is_needed = [True]

    def put() -> bool:
        is_own = os.environ.get(variable) == value
        if is_own:
            os.putenv(variable, value)
        return is_own

    def make(function: str, place: ReplacedPlace, _: Permit) -> Any:
        original = getattr(module, function)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_put = bool(is_needed) and put()
            try:
                result = original(*args, **kwargs)
                is_needed.clear()
            except BaseException as error:
                if is_put:
                    os.unsetenv(variable)
                hide_frame(error)
                raise
            if is_put:
                os.unsetenv(variable)
            return result

        place.undone = put
        return call if isinstance(original, FunctionType) else FunctionStandIn(original, call)

    for function in _WINDOWS:
        if hasattr(module, function):
            place = f"{request.name}.{function} ({request.rule.id})"
            make_it = functools.partial(make, function)
            request.replacements.put(request, place, module, function, make_it)
    os.unsetenv(variable)
    yield Done(variable, "set only while OpenCV opens its first window", stays=False)
