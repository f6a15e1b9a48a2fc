"""Copies of what a compiled call returns, which a later call cannot overwrite.

Looked through are dictionaries, lists, tuples and dataclasses, in one another. What stands for the
same tensor, or for parts of the same memory, does so in the copies as well.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from cudaguard.core.caller import frame_outside_of
from cudaguard.features.cuda_graphs import findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.core.reports import Reporter

_ALIGNMENT = 16  # bytes: of every type of element
_DEEPEST = 64  # containers within containers; deeper ones are left as they are
_SEARCHED, _NEAR = 300, 4  # objects, and how deep, in which tensors are looked for elsewhere
_SEARCHED_CALLS = 4  # whose results are searched for tensors in objects that are not looked into
_SIMPLE = (
    *(str, bytes, bytearray, int, float, complex, type(None), type),
    *(FunctionType, BuiltinFunctionType, MethodType, ModuleType),
)


class ResultCopies:
    """Hands out copies of what one callable returns.

    Args:
        reporter: Is told of tensors that are not copied.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._calls = 0

    def begin(self) -> None:
        """Do nothing before a call."""

    def hand_out(self, result: Any, arguments: Any) -> Any:
        """Return a copy of a result.

        What lies in the memory of the arguments is the caller's own, and is handed on as it is.
        """
        own = {_storage_of(tensor) for tensor in _tensors_in(arguments)}
        self._calls += 1
        is_searched = self._calls <= _SEARCHED_CALLS
        return _copied(result, own, self._look_into if is_searched else None)

    def _look_into(self, value: Any) -> None:
        if _has_tensor(value):
            kind = type(value)
            finding = findings.not_copied(f"{kind.__module__}.{kind.__qualname__}")
            self._reporter.found(finding, frame_outside_of("torch"))


def _copied(result: Any, own: set[int | None], other: Callable[[Any], None] | None) -> Any:
    """Return a result with its tensors copied; itself if it has none.

    Args:
        result: The result.
        own: Storages whose tensors are handed on as they are.
        other: Given what is neither a tensor nor looked into.
    """
    # Kept alive with their copies: the number of an object that is gone is used again.
    copies: dict[int, tuple[Any, Any]] = {}
    groups: dict[int, list[Any]] = {}
    for tensor in _tensors_in(result, other):
        copies[id(tensor)] = (tensor, tensor)
        storage = _storage_of(tensor)
        if isinstance(tensor, sys.modules["torch"].nn.Parameter):
            continue
        if storage is None:  # sparse, or a class of its own kind
            copies[id(tensor)] = (tensor, tensor.clone())
        elif storage not in own:
            groups.setdefault(storage, []).append(tensor)
    for group in groups.values():
        copies.update((id(old), (old, new)) for old, new in zip(group, _copies_of(group)))
    return Walker(lambda tensor: copies[id(tensor)][1]).walk(result)


def _copies_of(group: list[Any]) -> list[Any]:
    """Return copies of tensors of one memory, which share theirs where that is possible."""
    shares = len(group) > 1 or any(0 in t.stride() and t.numel() for t in group)
    if shares and not any(_must_be_cloned(tensor) for tensor in group):
        return _copy_memory(group)
    return [tensor.clone() for tensor in group]  # gradients pass through clone() only


def _must_be_cloned(tensor: Any) -> bool:
    return bool(
        tensor.requires_grad
        or type(tensor) is not sys.modules["torch"].Tensor
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor.is_quantized
    )


def _copy_memory(group: list[Any]) -> list[Any]:
    """Copy the bytes that a group reaches once, and lay the same tensors over them."""
    torch: Any = sys.modules["torch"]
    spans = [_span(tensor) for tensor in group]
    low = min(begin for begin, _ in spans) // _ALIGNMENT * _ALIGNMENT
    high = max(end for _, end in spans)
    device, storage = group[0].device, group[0].untyped_storage()
    twins = []
    with torch.no_grad():
        raw = torch.empty(0, dtype=torch.uint8, device=device)
        memory = raw.set_(storage, low, (high - low,), (1,)).clone().untyped_storage()
        for tensor, (begin, _) in zip(group, spans):
            offset = (begin - low) // tensor.element_size()
            twin = torch.empty(0, dtype=tensor.dtype, device=device)
            twins.append(twin.set_(memory, offset, tensor.shape, tensor.stride()))
    return twins


def _tensors_in(value: Any, other: Callable[[Any], None] | None = None) -> list[Any]:
    """Return the tensors of a value, each once; `other` as for `Walker`."""
    found: dict[int, Any] = {}

    def visit(tensor: Any) -> Any:
        found[id(tensor)] = tensor
        return tensor

    Walker(visit, other).walk(value)
    return list(found.values())


def _storage_of(tensor: Any) -> int | None:
    """Return what tells whose memory a tensor lies in; None if it has none of its own."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def _span(tensor: Any) -> tuple[int, int]:
    """Return where in its storage a tensor begins and ends, in bytes."""
    size, begin = tensor.element_size(), tensor.storage_offset()
    if not tensor.numel():
        return begin * size, begin * size
    last = sum((count - 1) * step for count, step in zip(tensor.shape, tensor.stride()))
    return begin * size, (begin + last + 1) * size


class Walker:
    """Rebuilds a value with something else in place of its tensors.

    The same container twice is one container in what is rebuilt.

    Args:
        visit: Given a tensor, returns what to put in its place.
        other: Given whatever is neither a tensor nor a container.
    """

    def __init__(
        self, visit: Callable[[Any], Any], other: Callable[[Any], None] | None = None
    ) -> None:
        self._tensor: Any = sys.modules["torch"].Tensor
        self._visit = visit
        self._other = other
        # Kept alive: the number of an object that is gone is used again.
        self._seen: dict[int, tuple[Any, Any]] = {}

    def walk(self, value: Any, depth: int = 0) -> Any:
        """Return the value, itself if nothing in it has changed."""
        if isinstance(value, self._tensor):
            return self._visit(value)
        if depth == _DEEPEST or isinstance(value, _SIMPLE):
            return value
        seen = self._seen.get(id(value))
        if seen is not None:
            return seen[1]
        self._seen[id(value)] = (value, value)  # for a container within itself
        new = self._rebuilt(value, depth + 1)
        self._seen[id(value)] = (value, new)
        return new

    def _rebuilt(self, value: Any, depth: int) -> Any:
        twin: Any
        if isinstance(value, (tuple, list)):
            items = [self.walk(item, depth) for item in value]
            if all(new is old for new, old in zip(items, value)):
                return value
            if isinstance(value, tuple):
                return _rebuilt_tuple(value, items)
            twin = copy.copy(value)
            twin[:] = items
            return twin
        if isinstance(value, dict):
            changed = self._changed(value, depth)
            if not changed:
                return value
            twin = copy.copy(value)
            for key, new in changed.items():
                twin[key] = new
            return twin
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            changed = self._changed({n: getattr(value, n, None) for n in names}, depth)
            if not changed:
                return value
            twin = _shallow(value, names)
            for name, new in changed.items():
                object.__setattr__(twin, name, new)  # frozen ones, too
            return twin
        if self._other is not None:
            self._other(value)
        return value

    def _changed(self, items: dict[Any, Any], depth: int) -> dict[Any, Any]:
        new = {key: self.walk(item, depth) for key, item in items.items()}
        return {key: item for key, item in new.items() if item is not items[key]}


def _has_tensor(value: Any) -> bool:
    """Return True if there are tensors near a value, in attributes and containers of any kind."""
    tensor: Any = sys.modules["torch"].Tensor
    near, seen = [value], {id(value)}
    for _ in range(_NEAR):
        referents = [item for item in gc.get_referents(*near) if not isinstance(item, _SIMPLE)]
        if any(isinstance(item, tensor) for item in referents):
            return True
        near = [item for item in referents if id(item) not in seen][:_SEARCHED]
        seen.update(map(id, near))
    return False


def _rebuilt_tuple(value: Any, items: list[Any]) -> Any:
    """Return a tuple of the same class, named ones and those of C too, with other items."""
    kind = type(value)
    if hasattr(kind, "n_sequence_fields"):  # of C, as torch.return_types
        return kind(items)
    twin = tuple.__new__(kind, items)  # whatever its own constructor takes
    if hasattr(value, "__dict__"):
        twin.__dict__.update(value.__dict__)
    return twin


def _shallow(value: Any, names: list[str]) -> Any:
    try:
        return copy.copy(value)
    except dataclasses.FrozenInstanceError:  # with slots: copy sets them one by one
        twin = object.__new__(type(value))
        for name in names:
            object.__setattr__(twin, name, getattr(value, name))
        return twin


# --- What ``torch.compile`` has returned: whether it uses CUDA graphs, and how it does without ----
# torch is asked where it is there; nothing is imported and nothing is compiled for it. The compiler
# of a callable stands in its closure, which is private to torch; it reads its options when it
# compiles.
#
# Source: torch 2.13, ``torch/__init__.py`` (``compile``, ``_TorchCompileInductorWrapper``),
# ``torch/_dynamo/eval_frame.py``.

_OPTION = "triton.cudagraphs"
_BACKEND = "cudagraphs"
_MOST_WRAPPERS = 8  # wrappers around a compiler or a compiled callable that are looked through


def uses_graphs(compiled: Any) -> bool | None:
    """Return whether a compiled function, method or module uses CUDA graphs, None if unknown."""
    compiler = _compiler_of(compiled)
    if _name_of(compiler) == _BACKEND:
        return True
    options = getattr(compiler, "config", None)
    if not isinstance(options, dict):
        return None
    config = getattr(sys.modules.get("torch._inductor.config"), "triton", None)
    value = options.get(_OPTION, getattr(config, "cudagraphs", None))
    return None if value is None else bool(value)


def disable_graphs(compiled: Any) -> bool:
    """Have it compiled without CUDA graphs, all else as it was; return False if that cannot be.

    What is compiled of it already stays as it is, until torch is reset.
    """
    compiler = _compiler_of(compiled)
    options = getattr(compiler, "config", None)
    if _name_of(compiler) == _BACKEND or not isinstance(options, dict):
        return False
    options[_OPTION] = False
    return True


def _compiler_of(compiled: Any) -> Any:
    """Return the compiler that a compiled callable was made with, None where it is not found."""
    compiled = inner(compiled)
    compiler = getattr(getattr(compiled, "__dict__", {}).get("dynamo_ctx"), "callback", None)
    code, cells = getattr(compiled, "__code__", None), getattr(compiled, "__closure__", None)
    if compiler is None and code is not None and cells and "callback" in code.co_freevars:
        compiler = cells[code.co_freevars.index("callback")].cell_contents
    for _ in range(_MOST_WRAPPERS):
        below = getattr(compiler, "_torchdynamo_orig_backend", None)
        if below is None or isinstance(getattr(compiler, "config", None), dict):
            break
        compiler = below
    return compiler


def _name_of(compiler: Any) -> str:
    return str(getattr(compiler, "compiler_name", getattr(compiler, "__name__", "")))


def inner(compiled: Any) -> Any:
    """Return what torch has made, of a module compiled in place or of a wrapper of ours."""
    for _ in range(_MOST_WRAPPERS):
        name = place_in(compiled)
        attributes = getattr(compiled, "__dict__", {})
        below = attributes[name] if name else attributes.get("_cudaguard_of")
        if below is None:
            break
        compiled = below
    return compiled


def place_in(module: Any) -> str:
    """Return the attribute in which a module has what was compiled in place, or nothing.

    torch itself puts it into the one, programs put it into the other.
    """
    attributes = getattr(module, "__dict__", {})
    if attributes.get("_compiled_call_impl") is not None:
        return "_compiled_call_impl"
    forward = attributes.get("forward")
    is_compiled = hasattr(forward, "_torchdynamo_orig_callable")
    return "forward" if is_compiled and "_orig_mod" not in attributes.get("_modules", {}) else ""
