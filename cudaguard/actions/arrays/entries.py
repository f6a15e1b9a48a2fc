"""Put something before the entry points of consumers, and behind what producers export.

A constructor is replaced by a closure on its class: nothing else changes of the class, its
instances, and how they are pickled. A function is wrapped by `wrapt`, which keeps its name,
signature and module. Both are put back by `undo`, unless somebody has replaced them since.
"""

from __future__ import annotations

import functools
import sys
from operator import attrgetter

from cudaguard.model import Record
from cudaguard.policy.array_faults import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Take = Callable[[Any], Any]

INTERFACE = "__cuda_array_interface__"


class Replaced(Record):
    """An attribute that was replaced.

    Args:
        owner: Whose attribute: a class or a module.
        name: The attribute.
        original: What it was; None where the class had inherited it.
        ours: What it is now.
    """

    __slots__ = ("name", "original", "ours", "owner")
    owner: Any
    name: str
    original: Any
    ours: Any

    def __init__(self, owner: Any, name: str, original: Any, ours: Any) -> None:
        self._fill(owner=owner, name=name, original=original, ours=ours)

    def undo(self) -> bool:
        """Put the original back; False if something else has been put there since."""
        if vars(self.owner).get(self.name) is not self.ours:
            return False
        if self.original is None:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)
        return True


def split(argument: str) -> tuple[str, str]:
    """Return path and parameter of an entry point, as in ``TensorGPU.__init__(object)``."""
    path, _, rest = argument.partition("(")
    return path, rest.rstrip(")")


def precede(module: str, path: str, parameter: str, take: Take) -> Replaced:
    """Have each call of an entry point given what `take` makes of its array.

    Args:
        module: An imported module.
        path: A function of it, or a method, as in ``TensorGPU.__init__``.
        parameter: Name of the parameter that takes the array: the first one, ``self`` apart.
        take: Given the argument, returns what to hand over.

    Raises:
        AttributeError: There is no such entry point.
        TypeError: It cannot be replaced.
    """
    owner, name = _resolve(module, path)
    if isinstance(owner, type):
        return _replace(owner, name, _constructor(getattr(owner, name), parameter, take))
    return _replace(owner, name, _function(getattr(owner, name), parameter, take))


def correct(module: str, path: str, mend: Callable[[Any, Any], Any]) -> Replaced:
    """Have what a class exports as its array interface mended.

    Args:
        module: An imported module.
        path: A class of it.
        mend: Given the array and its interface, returns the one to show.

    Raises:
        AttributeError: There is no such class, or it has no interface.
        TypeError: It cannot be changed.
    """
    owner, name = _resolve(module, f"{path}.{INTERFACE}")
    export = getattr(owner, name)
    get = type(export).__get__

    def interface(self: Any) -> Any:
        return mend(self, get(export, self, type(self)))

    interface.__doc__ = getattr(export, "__doc__", None)
    return _replace(owner, name, property(interface))


def changed(before: Any, after: Any) -> tuple[str, ...]:
    """Return what is different in two interfaces, entry by entry, as clauses."""
    found = []
    for field in {**before, **after}:
        if field not in after:
            found.append(f"{field} {shown(before[field])} left out")
        elif field not in before:
            found.append(f"{field} {shown(after[field])} added")
        elif before[field] is not after[field] and shown(before[field]) != shown(after[field]):
            found.append(f"{field} {shown(before[field])} as {shown(after[field])}")
    return tuple(found)


def _resolve(module: str, path: str) -> tuple[Any, str]:
    owner, _, name = path.rpartition(".")
    found: Any = sys.modules[module]
    return (attrgetter(owner)(found) if owner else found), name


def _replace(owner: Any, name: str, ours: Any) -> Replaced:
    original = vars(owner).get(name)
    setattr(owner, name, ours)
    return Replaced(owner, name, original, ours)


def _constructor(original: Any, parameter: str, take: Take) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807  # it replaces one
        if args:
            return original(self, take(args[0]), *args[1:], **kwargs)
        if parameter in kwargs:
            kwargs[parameter] = take(kwargs[parameter])
        return original(self, *args, **kwargs)

    return __init__


def _function(original: Any, parameter: str, take: Take) -> Any:
    import wrapt

    def wrapper(wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            args = (take(args[0]), *args[1:])
        elif parameter in kwargs:
            kwargs = {**kwargs, parameter: take(kwargs[parameter])}
        return wrapped(*args, **kwargs)

    return wrapt.FunctionWrapper(original, wrapper)
