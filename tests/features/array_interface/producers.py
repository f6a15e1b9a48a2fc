"""Arrays that export any dictionary."""

from __future__ import annotations

from typing import Any


class Producer:
    """Exports what it is given, and counts how often it is asked."""

    def __init__(self, interface: Any) -> None:
        self.interface = interface
        self.reads = 0

    @property
    def __cuda_array_interface__(self) -> Any:
        self.reads += 1
        return self.interface


def interface(**changes: Any) -> dict[str, Any]:
    """Four floats at 0x1000; `changes` with the value ``...`` leave an entry out."""
    entries = {"shape": (4,), "typestr": "<f4", "data": (0x1000, False), "version": 3, **changes}
    return {field: value for field, value in entries.items() if value is not ...}


def make(**changes: Any) -> Producer:
    """A producer of `interface(**changes)`."""
    return Producer(interface(**changes))


class Number:
    """An integer like NumPy's: no sub-class of int, and with an index."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class MyInt(int):
    __slots__ = ()


class MyTuple(tuple):  # type: ignore[type-arg]
    __slots__ = ()


class MyText(str):
    __slots__ = ()
