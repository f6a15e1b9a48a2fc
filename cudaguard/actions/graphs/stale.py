"""Results that somebody still holds when a later call has overwritten them, without an error.

For debugging: each result is copied and compared, which takes memory and time, and has the host
wait for the device at every call.
"""

from __future__ import annotations

import sys
import weakref

from cudaguard.rules.graph_errors import overwritten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


class Held:
    """Remembers what calls have returned, and looks at it after the next ones.

    Args:
        tell: Takes the line whose result was overwritten, its shape, and the line that did it.
    """

    def __init__(self, tell: Callable[[str, tuple[int, ...], str], None]) -> None:
        self._tell = tell
        self._results: list[tuple[Any, Any, int, str]] = []

    def look(self, where: str) -> None:
        """Look, after a call, at all results of earlier calls that are still held.

        Args:
            where: The line of that call.
        """
        left = []
        for reference, before, version, line in self._results:
            tensor = reference()
            # The program itself may write to a result; that is counted.
            if tensor is None or _version(tensor) != version:
                continue
            if _is_same(tensor, before):
                left.append((reference, before, version, line))
            else:
                self._tell(line, tuple(tensor.shape), where)
        self._results = left

    def keep(self, tensors: Iterable[Any], where: str) -> None:
        """Remember what a call has returned.

        Args:
            tensors: Its tensors.
            where: The line of that call.
        """
        for tensor in tensors:
            if not (tensor.is_meta or tensor.is_quantized or tensor.is_nested or tensor.is_sparse):
                before = tensor.detach().resolve_conj().resolve_neg().clone()
                self._results.append((weakref.ref(tensor), before, _version(tensor), where))


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)  # there they are not counted


def _is_same(tensor: Any, before: Any) -> bool:
    torch: Any = sys.modules["torch"]
    try:
        # As bytes: NaN is not equal to itself.
        now = tensor.detach().resolve_conj().resolve_neg().contiguous()
        now = now.reshape(-1).view(torch.uint8)
    except RuntimeError as error:
        return overwritten(str(error)) is None  # torch knows of it, and refuses to read it
    return bool(torch.equal(now, before.contiguous().reshape(-1).view(torch.uint8)))
