"""Copies of what a compiled call returns, which a later call cannot overwrite.

What stands for the same tensor, or for parts of the same memory, does so in the copies as well.
"""

from __future__ import annotations

import copy
import dataclasses
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_DEEPEST = 64  # containers within containers; deeper ones are left as they are
_ALIGNMENT = 16  # bytes: of every type of element


class Copier:
    """Copies the tensors of one result.

    Args:
        kept: Storages whose tensors are handed on as they are: those of the arguments.
        unknown: Told of each class whose instances have tensors that are not found by looking into
            containers.
    """

    def __init__(self, kept: frozenset[int], unknown: Callable[[type], None]) -> None:
        self._torch: Any = sys.modules["torch"]
        self._kept = kept
        self._unknown = unknown
        # Kept alive with their copies: the number of an object that is gone is used again.
        self._copies: dict[int, tuple[Any, Any]] = {}

    def copy(self, result: Any) -> Any:
        """Return the result with its tensors copied; itself if it has none."""
        tensors: list[Any] = []
        self.visit(result, tensors.append)
        for group in self._by_memory(tensors):
            self._copy_together(group)
        return self._walk(result, lambda tensor: self._copies[id(tensor)][1], 0)

    def visit(self, value: Any, see: Callable[[Any], Any]) -> None:
        """Hand each tensor of `value` to `see`."""

        def seen(tensor: Any) -> Any:
            see(tensor)
            return tensor

        self._walk(value, seen, 0)

    def _walk(self, value: Any, visit: Callable[[Any], Any], depth: int) -> Any:
        """Return `value` with what `visit` makes of its tensors; itself if that is the same."""
        if isinstance(value, self._torch.Tensor):
            return visit(value)
        if depth == _DEEPEST:
            return value
        kind = type(value)
        if isinstance(value, (tuple, list)):
            items = [self._walk(item, visit, depth + 1) for item in value]
            if all(new is old for new, old in zip(items, value)):
                return value
            if isinstance(value, list):
                return _with_items(value, enumerate(items))
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        if isinstance(value, dict):
            return _with_items(
                value,
                [
                    (key, new)
                    for key, item in value.items()
                    for new in [self._walk(item, visit, depth + 1)]
                    if new is not item
                ],
            )
        if isinstance(value, type):
            return value
        if dataclasses.is_dataclass(value):
            return self._walk_fields(value, visit, depth)
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict):
            return value
        if any(isinstance(item, self._torch.Tensor) for item in attributes.values()):
            self._unknown(kind)
        return value

    def _walk_fields(self, value: Any, visit: Callable[[Any], Any], depth: int) -> Any:
        changed = {}
        for field in dataclasses.fields(value):
            old = getattr(value, field.name, None)
            new = self._walk(old, visit, depth + 1)
            if new is not old:
                changed[field.name] = new
        if not changed:
            return value
        twin = copy.copy(value)
        for name, new in changed.items():
            object.__setattr__(twin, name, new)  # frozen ones, too
        return twin

    def _by_memory(self, tensors: list[Any]) -> list[list[Any]]:
        """Group the tensors that share memory; note those that stay as they are."""
        groups: dict[int, list[Any]] = {}
        for tensor in tensors:
            if id(tensor) in self._copies:
                continue
            self._copies[id(tensor)] = (tensor, tensor)
            if tensor.is_leaf and tensor.requires_grad:  # a parameter
                continue
            storage = storage_of(tensor)
            if storage is None:  # sparse, or a class of its own kind
                self._copies[id(tensor)] = (tensor, tensor.clone())
            elif storage not in self._kept:
                groups.setdefault(storage, []).append(tensor)
        return list(groups.values())

    def _copy_together(self, group: list[Any]) -> None:
        shares = len(group) > 1 or any(0 in t.stride() and t.numel() for t in group)
        if shares and not any(self._must_be_cloned(tensor) for tensor in group):
            for tensor, twin in zip(group, self._copy_memory(group)):
                self._copies[id(tensor)] = (tensor, twin)
            return
        for tensor in group:  # each by itself: gradients pass through clone() only
            self._copies[id(tensor)] = (tensor, tensor.clone())

    def _must_be_cloned(self, tensor: Any) -> bool:
        return bool(
            tensor.requires_grad
            or type(tensor) is not self._torch.Tensor
            or tensor.is_conj()
            or tensor.is_neg()
            or tensor.is_quantized
        )

    def _copy_memory(self, group: list[Any]) -> list[Any]:
        """Copy the bytes that a group reaches once, and lay the same tensors over them."""
        spans = [_span(tensor) for tensor in group]
        low = min(begin for begin, _ in spans) // _ALIGNMENT * _ALIGNMENT
        high = max(end for _, end in spans)
        torch = self._torch
        device, storage = group[0].device, group[0].untyped_storage()
        with torch.no_grad():
            raw = torch.empty(0, dtype=torch.uint8, device=device)
            raw = raw.set_(storage, low, (high - low,), (1,)).clone()
            twins = []
            for tensor, (begin, _) in zip(group, spans):
                offset = (begin - low) // tensor.element_size()
                twin = torch.empty(0, dtype=tensor.dtype, device=device)
                twins.append(
                    twin.set_(raw.untyped_storage(), offset, tensor.shape, tensor.stride())
                )
        return twins


def _with_items(container: Any, items: Any) -> Any:
    """Return a copy of a list or dictionary, of its own class, with some items replaced."""
    items = list(items)
    if not items:
        return container
    twin = copy.copy(container)
    for key, item in items:
        twin[key] = item
    return twin


def storage_of(tensor: Any) -> int | None:
    """Return what tells whose memory a tensor lies in; None if it has none of its own."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def _span(tensor: Any) -> tuple[int, int]:
    """Return where in its storage a tensor begins and ends, in bytes."""
    size, begin = tensor.element_size(), tensor.storage_offset()
    if not tensor.numel():
        return begin * size, begin * size
    last = sum((count - 1) * step for count, step in zip(tensor.shape, tensor.stride()))
    return begin * size, (begin + last + 1) * size
