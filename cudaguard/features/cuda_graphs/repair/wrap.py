"""What stands around a compiled callable: copies of its results, and looks at what becomes of them.

While torch compiles a caller of it, nothing of this is there. A step is never marked: that is what
lets results be overwritten.
"""

from __future__ import annotations

import copy
import functools
import sys

from cudaguard.errors import CudaGuardWarning
from cudaguard.features.cuda_graphs.repair.clone import Copier, storage_of, tensors_in
from cudaguard.features.cuda_graphs.repair.walk import has_tensor
from cudaguard.files import theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from cudaguard.features.cuda_graphs.repair.parked import Parked
    from cudaguard.features.cuda_graphs.repair.stale import Held

    class Listener(Protocol):
        """What is told by a wrapper; none of these raises."""

        def failed(self, error: RuntimeError) -> None:
            """A call has failed."""

        def unknown(self, kind: type) -> None:
            """A result has tensors in objects of a class that is not looked into."""

        def broken(self, error: Exception) -> None:
            """Looking after a call has failed; its result is handed out as it is."""

        def here(self) -> str:
            """Return the line that makes the call under way."""


LOOKS = 4  # calls whose results are searched for tensors in objects that are not looked into


def wrap(
    function: Any,
    listener: Listener,
    *,
    copies: bool,
    parked: Parked | None = None,
    held: Held | None = None,
) -> Any:
    """Return a callable that does the same, with what was asked for around it.

    Args:
        function: A compiled function or method.
        listener: Is told.
        copies: True to hand out copies of the results' tensors.
        parked: Looks at what calls leave in the containers of a module.
        held: Looks at what later calls do to results that are held.
    """
    torch: Any = sys.modules["torch"]
    is_compiling = torch.compiler.is_compiling
    looks = 0

    def other(value: Any) -> None:
        if has_tensor(value):
            listener.unknown(type(value))

    def before() -> None:
        if parked is not None:
            parked.note()
        if held is not None:
            held.begin()

    def after(arguments: Any, result: Any) -> Any:
        nonlocal looks
        own = _storages(arguments) if parked is not None or copies else frozenset()
        if parked is not None:
            parked.look(own, (arguments, result))
        if held is not None:
            where = listener.here()
            held.look(where)
            result = held.keep(result, where)
        if not copies:
            return result
        looks += 1
        return Copier(own, other if looks <= LOOKS else None).copy(result)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        try:
            before()
        except CudaGuardWarning:
            raise
        except theirs(Exception) as error:
            listener.broken(error)
        try:
            result = function(*args, **kwargs)
        except RuntimeError as error:
            listener.failed(error)
            raise
        try:
            return after((args, kwargs), result)
        except CudaGuardWarning:  # the program's filters make an error of what it is told
            raise
        except theirs(Exception) as error:
            listener.broken(error)
            return result

    call._cudaguard_of = function  # type: ignore[attr-defined]  # for `use.inner`
    return call


def protect_copies(module: Any, protect: Callable[[Any], Any]) -> None:
    """Have ``copy.deepcopy`` of what ``torch.compile`` has made of a module protected as well.

    torch makes its forward anew. ``copy.copy`` asks nobody but the class; pickles stay as they are
    and need nothing of ours.

    Args:
        module: The module; nothing is done for one of a torch that copies in another way.
        protect: Protects a module in place.
    """
    if "__reduce__" not in vars(type(module)):
        return

    def deepcopy(memo: dict[int, Any]) -> Any:
        kind, parts = module.__reduce__()
        return protect(kind(*copy.deepcopy(parts, memo)))

    # Past torch, which sets attributes of what it has wrapped. They are not pickled.
    vars(module)["__deepcopy__"] = deepcopy


def _storages(arguments: Any) -> frozenset[int]:
    """Return whose memory the arguments lie in: what is handed through is the caller's own."""
    found = (storage_of(tensor) for tensor in tensors_in(arguments))
    return frozenset(storage for storage in found if storage is not None)
