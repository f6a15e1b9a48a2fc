"""Tensors that a compiled call has left in the Python containers of a module.

SAM2's image encoder is the model: its position encoding keeps a dictionary of tensors, which is
written inside the compiled forward. Such a tensor is no output that anybody could copy.

Source: https://github.com/facebookresearch/sam2/issues/460
"""

from __future__ import annotations

import sys
from collections import deque

from cudaguard.actions.graphs.clone import storage_of
from cudaguard.actions.graphs.walk import rebuilt_tuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Path = tuple[Any, ...]

CALLS = 4  # that are looked at: two until the graph is recorded, and as many for one recompilation
_OWN = ("_parameters", "_modules")
_BUFFERS = "_buffers"  # where torch keeps them: one that a call replaces is as any other attribute
_DEEPEST = 8  # containers within containers


class Parked:
    """Looks through a module before and after calls.

    Args:
        root: The module.
        rehome: Replace what is found by a copy?
        tell: Takes the place and the shape of each find.
    """

    def __init__(
        self, root: Any, rehome: bool, tell: Callable[[str, tuple[int, ...]], None]
    ) -> None:
        self._root = root
        self._rehome = rehome
        self._tell = tell
        self._calls = 0
        self._known: dict[tuple[int, str, Path], Any] = {}

    def note(self) -> None:
        """Take note, before a call, of what is there; does nothing after the first few."""
        if self._calls < CALLS:
            # The tensors themselves: the number of an object that is gone is used again.
            self._known = {
                (id(module), name, path): tensor
                for module, name, path, tensor in _tensors(self._root)
            }

    def look(self, own: frozenset[int]) -> None:
        """Look after a call for what is there since; does nothing after the first few.

        Args:
            own: Storages of the arguments: what lies in them is the caller's.
        """
        if self._calls >= CALLS:
            return
        self._calls += 1
        for module, name, path, tensor in list(_tensors(self._root)):
            place = (id(module), name, path)
            if self._known.get(place) is tensor or storage_of(tensor) in own:
                continue
            if self._rehome:
                _put(module, name, path, tensor.clone())
            self._tell(_words(module, name, path), tuple(tensor.shape))
        self._known.clear()  # nobody else may hold those tensors any more


def _tensors(root: Any) -> Iterator[tuple[Any, str, Path, Any]]:
    for module in root.modules():
        for name, value in list(vars(module).items()):
            if name not in _OWN:
                for path, tensor in _inside(value, ()):
                    yield module, name, path, tensor


def _inside(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the tensors in a value, each with the keys and indices that lead to it."""
    if isinstance(value, sys.modules["torch"].Tensor):
        yield path, value
    elif len(path) < _DEEPEST and isinstance(value, (dict, list, tuple, deque)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(pairs):
            yield from _inside(item, (*path, key))


def _words(module: Any, name: str, path: Path) -> str:
    if name == _BUFFERS:
        name, path = path[0], path[1:]
    return f"{type(module).__name__}.{name}" + "".join(f"[{key!r}]" for key in path)


def _put(module: Any, name: str, path: Path, tensor: Any) -> None:
    old = vars(module)[name]
    new = _with(old, path, tensor)
    if new is not old:
        setattr(module, name, new)


def _with(value: Any, path: Path, tensor: Any) -> Any:
    """Return a value that has a tensor at a place: itself, or a new tuple."""
    if not path:
        return tensor
    old = value[path[0]]
    new = _with(old, path[1:], tensor)
    if isinstance(value, tuple):
        return rebuilt_tuple(value, [*value[: path[0]], new, *value[path[0] + 1 :]])
    if new is not old:
        value[path[0]] = new
    return value


def owner_of(function: Any) -> Any:
    """Return the module whose forward a compiled callable runs, None where it has none."""
    modules = getattr(sys.modules.get("torch"), "nn", None)
    kind = getattr(modules, "Module", ())
    for candidate in (
        function,
        getattr(function, "__self__", None),
        getattr(getattr(function, "_torchdynamo_orig_callable", None), "__self__", None),
        getattr(getattr(function, "__wrapped__", None), "__self__", None),
    ):
        if isinstance(candidate, kind):
            return getattr(candidate, "_orig_mod", candidate)
    return None
