"""What a consumer is given in place of an array that it would not read rightly."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.features.array_interface.interface import ArrayInterface


class View:
    """An array interface and nothing else; keeps the array alive whose memory it describes.

    It has no other protocol, so that nobody takes it for the array itself or finds another way
    into it. The interface is as it was when the view was made.

    Args:
        owner: The array.
        interface: What to show.
    """

    __slots__ = ("__weakref__", "_interface", "owner")

    def __init__(self, owner: object, interface: Any) -> None:
        self.owner = owner
        self._interface: ArrayInterface = interface

    @property
    def __cuda_array_interface__(self) -> ArrayInterface:
        return self._interface

    def __reduce_ex__(self, protocol: object) -> Any:
        # A copy of the array has memory elsewhere, and the address would be that of the first.
        raise TypeError("a view of an array can neither be copied nor pickled: take the array")

    def __repr__(self) -> str:
        kind = type(self.owner)
        return f"<cudaguard view of {kind.__module__}.{kind.__qualname__}>"
