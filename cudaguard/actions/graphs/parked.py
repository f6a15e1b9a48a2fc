"""Tensors that a compiled call has left in the Python containers of a module.

SAM2's image encoder is the model: its position encoding keeps a dictionary of tensors, which is
written inside the compiled forward. Such a tensor is no output that anybody could copy.

Source: https://github.com/facebookresearch/sam2/issues/460
"""

from __future__ import annotations

import sys

from cudaguard.actions.graphs.clone import storage_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

CALLS = 4  # that are looked at: two until the graph is recorded, and as many for one recompilation
_OWN = ("_parameters", "_buffers", "_modules")


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
        # The tensors themselves: the number of an object that is gone is used again.
        self._known: dict[tuple[int, str, object], Any] = {
            (id(module), name, key): tensor for module, name, key, tensor in _tensors(root)
        }

    def look(self, own: frozenset[int]) -> None:
        """Look after a call; does nothing after the first few.

        Args:
            own: Storages of the arguments: what lies in them is the caller's.
        """
        if self._calls >= CALLS:
            self._known.clear()  # nobody else may hold those tensors any more
            return
        self._calls += 1
        for module, name, key, tensor in _tensors(self._root):
            place = (id(module), name, key)
            if self._known.get(place) is tensor or storage_of(tensor) in own:
                continue
            # The copy is what is known then, or it would be found at every call.
            kept = tensor.clone() if self._rehome else tensor
            if self._rehome:
                _put(module, name, key, kept)
            self._known[place] = kept
            where = f"{type(module).__name__}.{name}" + ("" if key is _WHOLE else f"[{key!r}]")
            self._tell(where, tuple(tensor.shape))


class _Whole:
    """Stands for a key where the attribute is the tensor itself."""

    def __repr__(self) -> str:
        return "_WHOLE"


_WHOLE = _Whole()


def _tensors(root: Any) -> Iterator[tuple[Any, str, object, Any]]:
    tensor_class = sys.modules["torch"].Tensor
    for module in root.modules():
        for name, value in list(vars(module).items()):
            if name in _OWN:
                continue
            pairs: Any = ((_WHOLE, value),)
            if isinstance(value, dict):
                pairs = list(value.items())
            elif isinstance(value, list):
                pairs = list(enumerate(value))
            for key, item in pairs:
                if isinstance(item, tensor_class):
                    yield module, name, key, item


def _put(module: Any, name: str, key: object, tensor: Any) -> None:
    if key is _WHOLE:
        setattr(module, name, tensor)
    else:
        vars(module)[name][key] = tensor


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
