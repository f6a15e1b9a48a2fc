"""A bridge for consumers that take DLPack only: the same memory, without a copy.

Source: DLPack specification (https://dmlc.github.io/dlpack/latest/) and
https://data-apis.org/array-api/latest/API_specification/generated/array_api.array.__dlpack__.html
"""

from __future__ import annotations

import ctypes
import gc
import sys

from cudaguard.features.array_interface.consumers import DLPACK
from cudaguard.features.array_interface.interface import AUTO, LEGACY_STREAM, item_size
from cudaguard.features.array_interface.policy.faults import RefusedError, error_of, refused
from cudaguard.features.array_interface.repair.contexts import device_of
from cudaguard.features.array_interface.repair.handover import prepare, read
from cudaguard.features.array_interface.repair.order import make_wait
from cudaguard.features.array_interface.repair.view import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.features.array_interface.repair.handover import Note

_VERSION = 1, 0  # of DLPack: the first whose capsules say whether data is read-only
_CUDA = 2  # kDLCUDA
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_UNSYNCHRONIZED = -1  # the consumer asks for no waiting
_NAMES = b"dltensor", b"dltensor_versioned"  # capsules keep the address of their name
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # DLDataTypeCode


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _ManagedVersioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_new = ctypes.pythonapi["PyCapsule_New"]
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = ctypes.pythonapi["PyCapsule_IsValid"]
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
# A consumer may call the deleter while an exception is under way, without the interpreter's lock,
# or after the interpreter has gone: it must not be Python. time() of the C library fits: it takes
# an address and writes there. What stands first in the structure is another value then.
_deleter = ctypes.cast(ctypes.CDLL(None).time, ctypes.c_void_p)


class _Loan:
    """Memory that a consumer uses, and what must stay alive for it."""

    def __init__(self, managed: Any, *kept: object) -> None:
        self._managed = managed
        self._first = self._look()
        self._kept = kept
        self.capsule: Any = None

    def is_over(self) -> bool:
        """Return True if the consumer has given it back, or can no longer take it."""
        if self._look() != self._first:
            return True
        is_taken = not any(_is_valid(self.capsule, name) for name in _NAMES)
        return not is_taken and self.references() <= _OURS

    def references(self) -> int:
        """Return how many there are to the capsule."""
        return sys.getrefcount(self.capsule)

    def _look(self) -> int:
        return ctypes.c_uint64.from_buffer(self._managed).value


_loans: dict[int, _Loan] = {}  # by id


def _settle() -> None:
    """Let go of what consumers have done with."""
    for key, loan in list(_loans.items()):  # other threads lend meanwhile
        if loan.is_over():
            _loans.pop(key, None)


def _collected(phase: str, details: dict[str, int]) -> None:
    """Settle when Python has looked through all that there is, which is seldom."""
    if phase == "stop" and details.get("generation") == _OLDEST:
        _settle()
        if not _loans and _collected in gc.callbacks:
            gc.callbacks.remove(_collected)


def _lend(loan: _Loan) -> object:
    # What was given back is let go of before more is lent: each may be gigabytes of a frame. With
    # many loans only now and then, as each of them is looked at.
    if len(_loans) <= _FEW or len(_loans) >= _settle_at[0]:
        _settle()
        _settle_at[0] = 2 * len(_loans)
    capsule = loan.capsule  # held while the collector may run
    _loans[id(loan)] = loan
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)
    return capsule


_OLDEST, _FEW = 2, 16
_settle_at = [0]
_probe = _Loan(_Managed())
_probe.capsule = object()
_OURS = _probe.references()  # where nobody but the loan has one


class Bridge:
    """An array as DLPack has it, and nothing else; keeps the array alive.

    Args:
        owner: The array.
        interface: Its interface, in good form.
        device: Ordinal of its device.
    """

    __slots__ = ("__weakref__", "_device", "_interface", "owner")

    def __init__(self, owner: object, interface: dict[str, Any], device: int) -> None:
        self.owner = owner
        self._interface = interface
        self._device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self._device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a capsule; the consumer's stream waits for the work of the producer's.

        Args:
            stream: The consumer's: 1 or None for the legacy default stream, 2 for the per-thread
                one, a handle, -1 for no waiting.
            max_version: Newest DLPack that the consumer takes.
            dl_device: Where it wants the data: where they are, or nowhere.
            copy: True is refused; nothing is copied here.

        Raises:
            BufferError: It cannot be had so.
            ArrayInterfaceError: The driver refuses to wait.
        """
        if copy:
            raise BufferError("cudaguard lends memory and never copies it: copy=True is refused")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the data are on device {self.__dlpack_device__()}, not {dl_device}")
        is_versioned = max_version is not None and tuple(max_version) >= _VERSION
        if self._interface["data"][1] and not is_versioned:
            raise BufferError(
                "the array is read-only, which DLPack before 1.0 cannot say: hand over a copy, or "
                "ask with max_version=(1, 0)"
            )
        self._wait(stream)
        return _capsule(self, self._interface, self._device, is_versioned)

    def _wait(self, stream: int | None) -> None:
        pending = self._interface.get("stream")
        reader = LEGACY_STREAM if stream is None else stream
        if reader == 0:
            raise BufferError("stream 0 is ambiguous: 1 is the legacy default stream, 2 the other")
        if pending is None or reader == _UNSYNCHRONIZED:
            return
        try:
            make_wait(reader, pending, self._interface["data"][0])
        except RefusedError as error:
            raise error_of(error.fault, type(self.owner)) from None


def bridge(obj: Any, stream: Any, tell: Callable[[Note], None]) -> Any:
    """Return an array for a consumer that takes DLPack; itself if it has that already.

    Args:
        obj: The array. Its interface is read once.
        stream: As for `cudaguard.normalize`; an array with ``__dlpack__`` of its own is bridged
            where one is named, as its own knows nothing of that.
        tell: Takes what the program should hear of.

    Raises:
        ArrayInterfaceError: As for `cudaguard.normalize`, or it is not known which device it is on.
    """
    if hasattr(type(obj), "__dlpack__") and stream is AUTO:
        return obj
    cai = read(obj)
    handed = prepare(obj, cai, DLPACK, stream, tell)
    owner = handed.owner if type(handed) is View else handed
    interface = dict(cai if handed is obj else handed.__cuda_array_interface__)
    pointer = interface["data"][0]
    device = device_of(pointer) if pointer else 0
    if device is None:
        fault = refused(
            "data", interface["data"], "no driver of this process knows the device of that address",
            "hand over an array on a CUDA device, once CUDA is initialized",
        ).fault  # fmt: skip
        raise error_of(fault, type(owner))
    return Bridge(owner, interface, device)


def _capsule(owner: Bridge, interface: Any, device: int, is_versioned: bool) -> object:
    shape, typestr = interface["shape"], interface["typestr"]
    size, strides = item_size(typestr), interface.get("strides")
    if strides is None:
        strides, step = [0] * len(shape), size
        for at in range(len(shape) - 1, -1, -1):
            strides[at] = step
            step *= shape[at]
    counts = (ctypes.c_int64 * len(shape))(*shape)
    steps = (ctypes.c_int64 * len(shape))(*(step // size for step in strides))
    tensor = _Tensor(
        data=interface["data"][0] or None,
        device_type=_CUDA,
        device_id=device,
        ndim=len(shape),
        code=_KINDS[typestr[1]],
        bits=size * 8,
        lanes=1,
        shape=counts,
        strides=steps,
    )
    managed: Any
    if is_versioned:
        flags = _READ_ONLY if interface["data"][1] else 0
        managed = _ManagedVersioned(*_VERSION, None, _deleter, flags, tensor)
    else:
        managed = _Managed(tensor, None, _deleter)
    loan = _Loan(managed, counts, steps, owner)
    loan.capsule = _new(ctypes.addressof(managed), _NAMES[is_versioned], None)
    return _lend(loan)
