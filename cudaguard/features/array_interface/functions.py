"""The switches for arrays: ``normalize`` and ``validate``."""

from __future__ import annotations

from cudaguard.core.lifecycle import activation
from cudaguard.features.array_interface.consumers import ANYONE, consumer_for
from cudaguard.features.array_interface.findings import not_conforming
from cudaguard.features.array_interface.interface import AUTO, name_of
from cudaguard.features.array_interface.repair import faults_of, hand_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from cudaguard.model import Finding


def normalize(
    obj: Any, *, consumer: ModuleType | type | str | None = None, stream: Any = AUTO
) -> Any:
    """Return an array with ``__cuda_array_interface__`` in a form that its consumer reads.

    That is the array itself where nothing has to be changed; else a view that has the interface,
    and nothing more, and keeps the array alive. What is changed describes the same bytes with the
    same protection, and asks for at least the same synchronization.

    A consumer that does not look at streams is made to wait for the producer's all the same:
    its own stream is where that is known (torch), else the host.

    Args:
        obj: The array. The property is read once; what it raises goes out, but for
            AttributeError.
        consumer: Who is to read it: a name such as ``"dali"``, ``"torch"`` or ``"cupy"``, a module
            or a class of it; None for any reader that keeps to the specification.
        stream: On which stream the work that is pending on the array was started: a number other
            than 0, or a stream of cuda.core, torch, CuPy, numba or PyCUDA; None vouches that none
            is pending. It counts more than what the array says. Left out: what the array says.

    Raises:
        ArrayInterfaceError: It has no interface, or one that cannot be brought into such a form
            without a guess or a loss: a mask, read-only data, big-endian or strided data for a
            consumer that has no notion of them; a stream 0 of an unknown library; nonsense. The
            attributes ``field``, ``value``, ``rule`` and ``remedy`` say what and why.
        ValueError: The consumer is not known; the message has the nearest name and all names.
    """
    profile = ANYONE if consumer is None else consumer_for(consumer)
    return hand_over(obj, profile, stream, activation.core.reporter)


def validate(obj: Any) -> list[Finding]:
    """Return what keeps an object from conforming to the CUDA array interface; changes nothing.

    Source: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html

    Args:
        obj: The array. The property is read once; what it raises goes out, but for
            AttributeError.

    Returns:
        One finding for each entry at fault, with severity ``warning`` where `normalize` corrects
        it, ``error`` where it cannot. An empty list for an array that conforms.
    """
    whose = name_of(type(obj))
    return [
        not_conforming(whose, f.field, f.value, f.rule, f.remedy, can_be_mended=f.can_be_mended)
        for f in faults_of(obj)
    ]
