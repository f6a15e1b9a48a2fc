"""Results that somebody still holds when a later call has overwritten them, without an error.

For debugging: each result is copied and compared, which takes memory and time, and has the host
wait for the device at every call.
"""

from __future__ import annotations

import sys
import weakref

from cudaguard.core.caller import describe, frame_outside_of
from cudaguard.features.cuda_graphs import messages as wording
from cudaguard.features.cuda_graphs.copies import Walker
from cudaguard.features.cuda_graphs.known_errors import overwritten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.reports import Reporter


class HeldResults:
    """Remembers what the calls of one callable have returned, and looks at it before the next.

    Args:
        reporter: Is told.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._results: list[tuple[Any, Any, int, str]] = []  # reference, copy, version, line
        self._last_line = ""

    def begin(self) -> None:
        """Tell, before a call, of what the last one has overwritten and is held all the same.

        Not before: in ``y = f(x)`` the result before is held until the new one is there.
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
                finding = wording.stale(line, tuple(tensor.shape), self._last_line)
                self._reporter.found(finding, frame_outside_of("torch"))
        self._results = left

    def hand_out(self, result: Any, _: object) -> Any:
        """Return the result of a call, of which every tensor is an object of this call.

        torch hands out the same ones again and again once a graph is recorded, and holds them
        itself: nobody could tell whether the program does.
        """
        self._last_line = describe(frame_outside_of("torch"))
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
                entry = weakref.ref(tensor), before, _version(tensor), self._last_line
                self._results.append(entry)
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
