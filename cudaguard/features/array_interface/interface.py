"""The CUDA array interface, versions 0 to 3: what each entry of the dictionary means.

Source: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html and, for ``typestr`` and
``descr``, https://numpy.org/doc/stable/reference/arrays.interface.html.
"""

from __future__ import annotations

from cudaguard.errors import ArrayInterfaceError
from cudaguard.files import program_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INTERFACE = "__cuda_array_interface__"
NEWEST = 3  # version of the specification
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2  # what 1 and 2 mean as a stream; 0 is forbidden
ADDRESS_SPACE = 1 << 64
MISSING = object()

# What the specification says of each entry, as a clause for messages.
SPECIFICATION: dict[str, str] = {
    "shape": "it must be a tuple of integers, none of them negative",
    "typestr": "it must be a string of byte order (<, > or |), kind and size in bytes, as in '<f4'",
    "data": "it must be a tuple of the address (an integer, 0 for an array without elements) and a "
    "bool that says whether it is read-only",
    "version": f"it must be an integer, and {NEWEST} is the newest version there is",
    "strides": "it must be absent, None, or a tuple with the bytes to step in each dimension",
    "descr": "fields of a structured type, as in NumPy's array interface; not looked at",
    "mask": "it must be absent, None, or an array that has a __cuda_array_interface__ itself",
    "stream": "it must be absent, None, or the number of a stream: 1 for the legacy default "
    "stream, 2 for the per-thread one, a handle for others; 0 is forbidden, being ambiguous",
}


class _Auto:
    """The one value of its kind: take what the producer says."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "AUTO"


AUTO = _Auto()

# --- What can be wrong, and how it is put into words ----------------------------------------------

CORRECT = "correct what the producer exports"
_LONGEST = 60  # characters of a value in a message
_GIVE_STREAM = (
    "name the stream on which the pending work was started, or None where none is pending"
)


class EntryError(Exception):
    """One thing that is wrong with an array interface.

    Args:
        field: The entry of the dictionary, or ``__cuda_array_interface__`` for all of it.
        value: What stands there.
        rule: What should, as a clause; left out: what the specification says of the entry.
        remedy: What to do, as an imperative.
        can_be_corrected: True if there is one thing only that it can mean.
    """

    def __init__(
        self,
        field: str,
        value: object,
        rule: str = "",
        remedy: str = CORRECT,
        *,
        can_be_corrected: bool = False,
    ) -> None:
        super().__init__(field)
        self.field, self.value = field, shown(value)
        self.rule, self.remedy = rule or SPECIFICATION[field], remedy
        self.can_be_corrected = can_be_corrected

    def as_error(self, kind: type, *, is_stream_given: bool = False) -> ArrayInterfaceError:
        """Return the error that a program is given for an array of that class.

        Args:
            kind: The class.
            is_stream_given: True if the caller, and not the array, named the stream.
        """
        entry = "" if self.field == INTERFACE else f"[{self.field!r}]"
        where, remedy = f"{INTERFACE}{entry} of {name_of(kind)}", self.remedy
        if is_stream_given and self.field == "stream":
            where = f"The argument stream, given for an array of {name_of(kind)},"
            remedy = _GIVE_STREAM if remedy == CORRECT else remedy
        return ArrayInterfaceError(
            f"{where} is {self.value}: {self.rule}. Remedy: {remedy}.",
            field=self.field,
            value=self.value,
            rule=self.rule,
            remedy=remedy,
        )


def shown(value: object, depth: int = 2) -> str:
    """Return a value for a message: never long, and foreign code is not run for it."""
    kind = type(value)
    if value is MISSING:
        return "missing"
    if kind is int:
        bits = value.bit_length()  # type: ignore[attr-defined]  # the type is tested
        return repr(value) if bits <= 128 else f"an integer of {bits} bits"
    if value is None or kind in (bool, float):
        return repr(value)
    if kind in (str, bytes):
        text = repr(value[: _LONGEST + 1])  # type: ignore[index]  # the type is tested
        return text if len(text) <= _LONGEST + 2 else f"{text[: _LONGEST - 3]}..."
    if kind in (tuple, list) and depth:
        items: Any = value
        parts = [shown(item, depth - 1) for item in items[:6]] + ["..."] * (len(items) > 6)
        inside = ", ".join(parts) + ("," if kind is tuple and len(items) == 1 else "")
        return f"({inside})" if kind is tuple else f"[{inside}]"
    return f"an object of type {name_of(kind)}"


def name_of(kind: type) -> str:
    """Return the name of a class for a message, with its module."""
    try:
        module, name = kind.__module__, kind.__qualname__
    except program_errors(Exception):  # of a metaclass that is not ours
        return type.__repr__(kind)
    return name if module == "builtins" else f"{module}.{name}"
