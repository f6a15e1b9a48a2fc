"""Look through what a call returns: dictionaries, lists, tuples and dataclasses, in one another."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import deque
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_DEEPEST = 64  # containers within containers; deeper ones are left as they are
_SEARCHED, _NEAR = 300, 4  # objects, and how deep, in which tensors are looked for elsewhere
_SIMPLE = (
    *(str, bytes, bytearray, int, float, complex, type(None), type),
    *(FunctionType, BuiltinFunctionType, MethodType, ModuleType),
)


class Walker:
    """Rebuilds a value with something else in place of its tensors.

    The same container twice is one container in what is rebuilt.

    Args:
        visit: Given a tensor, returns what to put in its place.
        other: Given whatever is neither a tensor nor a container.
    """

    def __init__(
        self, visit: Callable[[Any], Any], other: Callable[[Any], None] | None = None
    ) -> None:
        self._tensor: Any = sys.modules["torch"].Tensor
        self._visit = visit
        self._other = other
        # Kept alive: the number of an object that is gone is used again.
        self._seen: dict[int, tuple[Any, Any]] = {}

    def walk(self, value: Any, depth: int = 0) -> Any:
        """Return the value, itself if nothing in it has changed."""
        if isinstance(value, self._tensor):
            return self._visit(value)
        if depth == _DEEPEST or isinstance(value, _SIMPLE):
            return value
        seen = self._seen.get(id(value))
        if seen is not None:
            return seen[1]
        self._seen[id(value)] = (value, value)  # for a container within itself
        new = self._rebuilt(value, depth + 1)
        self._seen[id(value)] = (value, new)
        return new

    def _rebuilt(self, value: Any, depth: int) -> Any:
        if isinstance(value, (tuple, list)):
            items = [self.walk(item, depth) for item in value]
            if all(new is old for new, old in zip(items, value)):
                return value
            return rebuilt_tuple(value, items) if isinstance(value, tuple) else _with(value, items)
        if isinstance(value, dict):
            pairs = [(key, self.walk(item, depth), item) for key, item in value.items()]
            changed = [(key, new) for key, new, old in pairs if new is not old]
            if not changed:
                return value
            twin = copy.copy(value)
            for key, new in changed:
                twin[key] = new
            return twin
        if dataclasses.is_dataclass(value):
            return self._rebuilt_fields(value, depth)
        if self._other is not None:
            self._other(value)
        return value

    def _rebuilt_fields(self, value: Any, depth: int) -> Any:
        changed = {}
        for field in dataclasses.fields(value):
            old = getattr(value, field.name, None)
            new = self.walk(old, depth)
            if new is not old:
                changed[field.name] = new
        if not changed:
            return value
        twin = _shallow(value)
        for name, new in changed.items():
            object.__setattr__(twin, name, new)  # frozen ones, too
        return twin


def has_tensor(value: Any) -> bool:
    """Return True if there are tensors near a value, in attributes and containers of any kind."""
    tensor: Any = sys.modules["torch"].Tensor
    todo, seen = deque([(value, 0)]), {id(value)}
    while todo and len(seen) < _SEARCHED:
        item, depth = todo.popleft()
        if isinstance(item, tensor):
            return True
        if depth < _NEAR:
            for child in _children(item):
                if not isinstance(child, _SIMPLE) and id(child) not in seen:
                    seen.add(id(child))
                    todo.append((child, depth + 1))
    return False


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, MappingProxyType)):
        yield from list(value.values())
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from list(value)
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from list(attributes.values())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                yield getattr(value, name, None)


def rebuilt_tuple(value: Any, items: list[Any]) -> Any:
    """Return a tuple of the same class, named ones and those of C too, with other items."""
    kind = type(value)
    if hasattr(kind, "n_sequence_fields"):  # of C, as torch.return_types
        return kind(items)
    twin = tuple.__new__(kind, items)  # whatever its own constructor takes
    if hasattr(value, "__dict__"):
        twin.__dict__.update(value.__dict__)
    return twin


def _shallow(value: Any) -> Any:
    try:
        return copy.copy(value)
    except dataclasses.FrozenInstanceError:  # with slots: copy sets them one by one
        twin = object.__new__(type(value))
        for field in dataclasses.fields(value):
            object.__setattr__(twin, field.name, getattr(value, field.name))
        return twin


def _with(value: Any, items: list[Any]) -> Any:
    twin = copy.copy(value)
    twin[:] = items
    return twin
