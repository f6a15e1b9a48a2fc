"""Tensors that a compiled call has left in the Python containers of a module.

SAM2's image encoder is the model: its position encoding keeps a dictionary of tensors, which is
written inside the compiled forward. Such a tensor is no output that anybody could copy.

Source: https://github.com/facebookresearch/sam2/issues/460
"""

from __future__ import annotations

import sys
from collections import deque

from cudaguard.features.cuda_graphs.repair.clone import storage_of, tensors_in
from cudaguard.features.cuda_graphs.repair.kept import Kept
from cudaguard.features.cuda_graphs.repair.walk import rebuilt_tuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Path = tuple[Any, ...]
    Place = tuple[int, str, Path]  # number of the module, attribute, keys and indices in it

# In which places are looked for: two until the graph is recorded, as many for one recompilation.
CALLS = 4
_OWN = ("_parameters", "_modules")
_BUFFERS = "_buffers"  # where torch keeps them: one that a call replaces is as any other attribute
_DEEPEST = 8  # containers within containers


class Parked:
    """Looks through a module before and after calls.

    The first calls show in what places tensors are left. Copies are made for as long as calls leave
    something there.

    Args:
        root: The module.
        is_copied: True to replace what is found by a copy.
        tell: Takes the place and the shape of each find.
        tell_moves: Takes the same of a place whose copies must move at each call.
    """

    def __init__(
        self,
        root: Any,
        is_copied: bool,
        tell: Callable[[str, tuple[int, ...]], None],
        tell_moves: Callable[[str, tuple[int, ...]], None],
    ) -> None:
        self._root = root
        self._is_copied = is_copied
        self._tell = tell
        self._tell_moves = tell_moves
        self._kept = Kept(self._moves)
        self._calls = 0
        self._places: dict[Place, Any] = {}  # with the module that each is in
        self._before: dict[Place, Any] = {}

    def note(self) -> None:
        """Take note, before a call, of what is there."""
        if self._is_over():
            return
        # The tensors themselves: the number of an object that is gone is used again.
        self._before = {
            (id(module), name, path): tensor for module, name, path, tensor in self._there()
        }

    def look(self, own: frozenset[int], around: Any) -> None:
        """Look after a call for what is there since.

        Args:
            own: Storages of the arguments: what lies in them is the caller's.
            around: The arguments and the result.
        """
        if self._is_over():
            return
        # A graph writes to the memory of its device; counters of a model on a GPU stay.
        on_device = any(tensor.device.type != "cpu" for tensor in tensors_in(around))
        for module, name, path, tensor in list(self._there()):
            place = (id(module), name, path)
            if self._before.get(place) is tensor or storage_of(tensor) in own:
                continue
            if on_device and tensor.device.type == "cpu":
                continue
            if self._is_copied:
                _put(module, name, path, self._kept.copy(place, self._before, tensor))
            if place not in self._places:
                self._places[place] = module
                self._tell(_words(module, name, path), tuple(tensor.shape))
        self._before = {}  # nobody else may hold those tensors any more
        self._calls += 1

    def _moves(self, place: Place, tensor: Any) -> None:
        _, name, path = place
        self._tell_moves(_words(self._places[place], name, path), tuple(tensor.shape))

    def _is_over(self) -> bool:
        return self._calls >= CALLS and not (self._is_copied and self._places)

    def _there(self) -> Iterator[tuple[Any, str, Path, Any]]:
        if self._calls < CALLS:
            yield from _tensors(self._root)
            return
        for (_, name, path), module in self._places.items():
            tensor = _at(module, name, path)
            if isinstance(tensor, sys.modules["torch"].Tensor):
                yield module, name, path, tensor


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


def _at(module: Any, name: str, path: Path) -> Any:
    value = vars(module).get(name)
    try:
        for key in path:
            value = value[key]
    except (IndexError, KeyError, TypeError):  # it is something else by now
        return None
    return value


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
