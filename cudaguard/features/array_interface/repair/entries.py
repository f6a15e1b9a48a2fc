"""Put something before the entry points of consumers, and behind what producers export.

A method is replaced by a closure on its class: nothing else changes of the class, its instances,
and how they are pickled. A function is wrapped by `wrapt`, which keeps its name, signature and
module. All are put back by `undo`, unless somebody has replaced them since; what somebody else
still holds hands on what it is given from then on.
"""

from __future__ import annotations

import functools
import inspect
import sys
from operator import attrgetter
from types import FunctionType

from cudaguard.core.replace import Replaced
from cudaguard.features.array_interface.policy.faults import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.core.replace import Switch

    Take = Callable[[Any], Any]

INTERFACE = "__cuda_array_interface__"


def precede(module: str, path: str, parameter: str, take: Take, switch: Switch) -> Replaced:
    """Have each call of an entry point given what `take` makes of its array.

    Args:
        module: An imported module.
        path: A function of it, or a method, as in ``TensorGPU.__init__``.
        parameter: Name of the parameter that takes the array: the first one, ``self`` apart.
        take: Given the argument, returns what to hand over.
        switch: Switched off by `Replaced.undo`.

    Raises:
        AttributeError: There is no such entry point.
        TypeError: It cannot be replaced.
    """
    owner, name = _resolve(module, path)
    found = getattr(owner, name)
    if isinstance(found, type):
        raise TypeError(f"{path} is a class: name its constructor, {path}.__init__")
    if not callable(found):
        raise TypeError(f"{path} is no function, but {shown(found)}")
    if not isinstance(owner, type):
        return Replaced(owner, name, _function(found, parameter, take), switch)
    raw = inspect.getattr_static(owner, name)
    if isinstance(raw, staticmethod):
        ours: Any = staticmethod(_function(raw.__func__, parameter, take))
    elif isinstance(raw, classmethod):
        ours = classmethod(_method(raw.__func__, parameter, take))
    else:
        ours = _method(found, parameter, take)
    return Replaced(owner, name, ours, switch)


def correct(module: str, path: str, mend: Callable[[Any, Any], Any], switch: Switch) -> Replaced:
    """Have what a class exports as its array interface mended.

    Args:
        module: An imported module.
        path: A class of it.
        mend: Given the array and its interface, returns the one to show.
        switch: Switched off by `Replaced.undo`.

    Raises:
        AttributeError: There is no such class, or it has no interface.
        TypeError: It cannot be changed.
    """
    owner, name = _resolve(module, f"{path}.{INTERFACE}")
    export = getattr(owner, name)
    get = type(export).__get__

    def interface(self: Any) -> Any:
        return mend(self, get(export, self, type(self)))

    # What it could do besides stays possible.
    more = [getattr(export, part, None) for part in ("fset", "fdel", "__doc__")]
    return Replaced(owner, name, property(interface, *more), switch)


def owner_of(module: str, path: str, verb: str) -> Any:
    """Return the class or module whose attribute a rule's action is about.

    Raises:
        AttributeError: There is none.
    """
    return _resolve(module, path if verb == "normalize_argument" else f"{path}.{INTERFACE}")[0]


def changed(before: Any, after: Any) -> dict[str, str]:
    """Return what is different in two interfaces: entry -> how, as a clause."""
    found = {}
    for field in {**before, **after}:
        if field not in after:
            found[field] = f"{field} {shown(before[field])} left out"
        elif field not in before:
            found[field] = f"{field} {shown(after[field])} added"
        elif before[field] is not after[field] and shown(before[field]) != shown(after[field]):
            found[field] = f"{field} {shown(before[field])} as {shown(after[field])}"
    return found


def _resolve(module: str, path: str) -> tuple[Any, str]:
    owner, _, name = path.rpartition(".")
    found: Any = sys.modules[module]
    return (attrgetter(owner)(found) if owner else found), name


def _method(original: Any, parameter: str, take: Take) -> Any:
    """Return a function whose first argument, an instance or a class, is left alone."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            return original(self, take(args[0]), *args[1:], **kwargs)
        if parameter in kwargs:
            kwargs[parameter] = take(kwargs[parameter])
        return original(self, *args, **kwargs)

    return method


def _function(original: Any, parameter: str, take: Take) -> Any:
    import wrapt

    class FunctionWrapper(wrapt.FunctionWrapper):  # type: ignore[type-arg]  # generic in its stubs only
        """Pickled and copied as the function is that it stands for."""

        def __reduce_ex__(self, protocol: Any) -> Any:
            wrapped = self.__wrapped__
            if isinstance(wrapped, FunctionType):
                return wrapped.__qualname__  # by its name, which is ours as well
            return wrapped.__reduce_ex__(protocol)

        def __copy__(self) -> Any:
            return self

        def __deepcopy__(self, _: object) -> Any:
            return self

    def wrapper(wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            args = (take(args[0]), *args[1:])
        elif parameter in kwargs:
            kwargs = {**kwargs, parameter: take(kwargs[parameter])}
        return wrapped(*args, **kwargs)

    return FunctionWrapper(original, wrapper)
