"""Copies of what a compiled call returns, which a later call cannot overwrite.

What stands for the same tensor, or for parts of the same memory, does so in the copies as well.
"""

from __future__ import annotations

import sys

from cudaguard.features.cuda_graphs.repair.walk import Walker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_ALIGNMENT = 16  # bytes: of every type of element


class Copier:
    """Copies the tensors of one result.

    Args:
        kept: Storages whose tensors are handed on as they are: those of the arguments.
        other: Given what is neither a tensor nor looked into; None if that is of no interest.
    """

    def __init__(self, kept: frozenset[int], other: Callable[[Any], None] | None = None) -> None:
        self._torch: Any = sys.modules["torch"]
        self._kept = kept
        self._other = other
        # Kept alive with their copies: the number of an object that is gone is used again.
        self._copies: dict[int, tuple[Any, Any]] = {}

    def copy(self, result: Any) -> Any:
        """Return the result with its tensors copied; itself if it has none."""
        for group in self._by_memory(tensors_in(result, self._other)):
            self._copy_together(group)
        return Walker(lambda tensor: self._copies[id(tensor)][1]).walk(result)

    def _by_memory(self, tensors: list[Any]) -> list[list[Any]]:
        """Group the tensors that share memory; note those that stay as they are."""
        groups: dict[int, list[Any]] = {}
        for tensor in tensors:
            self._copies[id(tensor)] = (tensor, tensor)
            if isinstance(tensor, self._torch.nn.Parameter):
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


def tensors_in(value: Any, other: Callable[[Any], None] | None = None) -> list[Any]:
    """Return the tensors of a value, each once.

    Args:
        value: The value.
        other: Given what is neither a tensor nor looked into.
    """
    found: dict[int, Any] = {}

    def visit(tensor: Any) -> Any:
        found[id(tensor)] = tensor
        return tensor

    Walker(visit, other).walk(value)
    return list(found.values())


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
