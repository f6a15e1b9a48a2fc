"""Copies of stored tensors that stay at few addresses.

A CUDA graph reads a stored tensor where it lay when the graph was recorded. In a recurrent module
each call leaves a new tensor, and a copy at a new address has torch record the graph again at every
call. So from the third copy of a place on, the last one is written over, unless somebody else holds
it: then nothing is, and that is told.

Source: torch 2.13, ``torch/_inductor/cudagraph_trees.py`` (static inputs, re-recording).
"""

from __future__ import annotations

import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any

FRESH = 2  # copies of one place that get memory of their own
HELD = 8  # copies of one place that somebody held, until it is told


class Kept:
    """Makes the copies. None is kept alive by it.

    Args:
        tell: Given a place whose copies are held again and again, once, and its tensor.
    """

    def __init__(self, tell: Callable[[Any, Any], None]) -> None:
        self._tell = tell
        self._last: dict[Hashable, weakref.ref[Any]] = {}
        self._fresh: dict[Hashable, int] = {}
        self._held: dict[Hashable, int] = {}

    def copy(self, place: Any, before: dict[Any, Any], tensor: Any) -> Any:
        """Return a copy of a tensor that a call has stored at a place.

        Args:
            place: The place.
            before: What lay at places before that call; that of this one is taken out.
            tensor: The tensor.
        """
        last = before.pop(place, None)
        is_copy = last is not None and self._last.get(place, _nothing)() is last
        if is_copy and self._fresh[place] >= FRESH and _can_take(last, tensor):
            if _references(last) <= _ONE and _memory_is_ours(last):
                with sys.modules["torch"].no_grad():
                    last.copy_(tensor)
                return last
            self._held[place] = self._held.get(place, 0) + 1
            if self._held[place] == HELD:
                self._tell(place, tensor)
        made = tensor.clone()
        self._fresh[place] = self._fresh.get(place, 0) + 1
        self._last[place] = weakref.ref(made)
        return made


def _nothing() -> None:
    """Stand for a reference to what is gone."""


def _can_take(last: Any, tensor: Any) -> bool:
    """Return True if what a tensor says can be written over another one."""
    torch: Any = sys.modules["torch"]
    return bool(
        type(last) is type(tensor) is torch.Tensor
        and not (last.requires_grad or tensor.requires_grad)
        and (last.shape, last.stride()) == (tensor.shape, tensor.stride())
        and (last.dtype, last.device, last.layout) == (tensor.dtype, tensor.device, tensor.layout)
        and not (tensor.is_conj() or tensor.is_neg())
        and last.is_inference() == tensor.is_inference()
        and last.is_inference() <= torch.is_inference_mode_enabled()
    )


def _memory_is_ours(last: Any) -> bool:
    """Return True if nobody else holds a tensor's memory, be it autograd, a view or its storage."""
    try:
        return _uses(last) == _uses(sys.modules["torch"].empty(0))
    except (AttributeError, RuntimeError):  # a torch that does not tell
        return False


def _uses(tensor: Any) -> tuple[int, ...]:
    torch: Any = sys.modules["torch"]
    storage = tensor.untyped_storage()
    uses = torch._C._storage_Use_Count(storage._cdata)
    return uses, tensor._use_count(), _references(storage)


def _references(value: object) -> int:
    return sys.getrefcount(value)


def _references_of_one() -> int:
    """Return what `_references` says of something that only a caller's variable has."""
    value = object()
    return _references(value)


_ONE = _references_of_one()
