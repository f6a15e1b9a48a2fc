"""Results that somebody still holds when a later call has overwritten them, without an error.

For debugging: each result is copied and compared, which takes memory and time, and has the host
wait for the device at every call.
"""

from __future__ import annotations

import sys
import weakref

from cudaguard.features.cuda_graphs.known_errors import overwritten
from cudaguard.features.cuda_graphs.repair.walk import Walker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Held:
    """Remembers what calls have returned, and looks at it after the next ones.

    Args:
        tell: Takes the line whose result was overwritten, its shape, and the line that did it.
    """

    def __init__(self, tell: Callable[[str, tuple[int, ...], str], None]) -> None:
        self._tell = tell
        self._results: list[tuple[Any, Any, int, str]] = []
        self._overwritten: list[tuple[Any, str, str]] = []

    def begin(self) -> None:
        """Tell, before a call, of what earlier ones have overwritten and is held all the same.

        Not before: in ``y = f(x)`` the last result is held until the next one is there.
        """
        found, self._overwritten = self._overwritten, []
        for reference, made_at, overwritten_at in found:
            tensor = reference()
            if tensor is not None:
                self._tell(made_at, tuple(tensor.shape), overwritten_at)

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
                self._overwritten.append((reference, line, where))
        self._results = left

    def keep(self, result: Any, where: str) -> Any:
        """Remember what a call has returned.

        Args:
            result: The result.
            where: The line of that call.

        Returns:
            The result, of which every tensor is an object of this call. torch hands out the same
            ones again and again once a graph is recorded, and holds them itself: nobody could tell
            whether the program does.
        """
        is_torchs = getattr(sys.modules["torch"]._C, "_is_cached_tensor", lambda _: False)
        own: dict[int, tuple[Any, Any]] = {}

        def visit(tensor: Any) -> Any:
            if id(tensor) not in own:
                twin = tensor.view_as(tensor) if is_torchs(tensor) else tensor
                own[id(tensor)] = (tensor, twin)
            return own[id(tensor)][1]

        result = Walker(visit).walk(result)
        for _, tensor in own.values():
            if not (tensor.is_meta or tensor.is_quantized or tensor.is_nested or tensor.is_sparse):
                before = tensor.detach().resolve_conj().resolve_neg().clone()
                self._results.append((weakref.ref(tensor), before, _version(tensor), where))
        return result


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
