"""What stands around a compiled callable: copies of its results, and looks at what becomes of them.

While torch compiles a caller of it, nothing of this is there. A step is never marked: that is what
lets results be overwritten.
"""

from __future__ import annotations

import functools
import sys

from cudaguard.actions.graphs.clone import Copier, storage_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    from cudaguard.actions.graphs.parked import Parked
    from cudaguard.actions.graphs.stale import Held

    class Listener(Protocol):
        """What is told by a wrapper."""

        def failed(self, error: RuntimeError) -> None:
            """A call has failed."""

        def unknown(self, kind: type) -> None:
            """A result has tensors in objects of a class that is not looked into."""

        def here(self) -> str:
            """Return the line that makes the call under way."""


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
        copies: Hand out copies of the results' tensors?
        parked: Looks at what calls leave in the containers of a module.
        held: Looks at what later calls do to results that are held.
    """
    torch: Any = sys.modules["torch"]
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except RuntimeError as error:
            listener.failed(error)
            raise
        if parked is not None:
            parked.look()
        if held is not None:
            where = listener.here()
            held.look(where)
            held.keep(tensors_in(result), where)
        if copies:
            return Copier(_storages((args, kwargs)), listener.unknown).copy(result)
        return result

    call._cudaguard_of = function  # type: ignore[attr-defined]  # for `use.inner`
    return call


def put_around(module: Any, wrapper: Callable[[Any], Any]) -> None:
    """Wrap what a module runs when it is called, in place: it stays the module that it is."""
    name = "_compiled_call_impl" if vars(module).get("_compiled_call_impl") else "forward"
    function = getattr(module, name)
    setattr(module, name, wrapper(getattr(function, "_cudaguard_of", function)))


def tensors_in(value: Any) -> Iterator[Any]:
    """Return the tensors of a result, in dictionaries, lists, tuples and dataclasses."""
    found: dict[int, Any] = {}
    collector = Copier(frozenset(), lambda _: None)
    collector.visit(value, lambda tensor: found.setdefault(id(tensor), tensor))
    return iter(found.values())


def _storages(arguments: Any) -> frozenset[int]:
    """Return whose memory the arguments lie in: what is handed through is the caller's own."""
    found = (storage_of(tensor) for tensor in tensors_in(arguments))
    return frozenset(storage for storage in found if storage is not None)
