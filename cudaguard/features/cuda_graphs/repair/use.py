"""Tells whether a compiled callable uses CUDA graphs, and what made it so.

torch is asked where it is there; nothing is imported and nothing is compiled for it.

Source: torch 2.13, ``torch/__init__.py`` (``compile``, ``_TorchCompileInductorWrapper``),
``torch/_dynamo/eval_frame.py``, ``torch/_inductor/__init__.py`` (``list_mode_options``).
"""

from __future__ import annotations

import sys
from importlib import import_module
from weakref import WeakKeyDictionary

from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

OPTION = "triton.cudagraphs"
_BACKEND = "cudagraphs"
_DEEPEST = 8  # wrappers around a backend that are looked through


class GraphUse(Record):
    """What is known of a compiled callable.

    Args:
        is_used: True if it uses CUDA graphs; None where that cannot be told.
        because: The mode, option or variable that decides it, as a clause; may be empty.
    """

    __slots__ = ("because", "is_used")
    is_used: bool | None
    because: str

    def __init__(self, is_used: bool | None, because: str = "") -> None:
        self._fill(is_used=is_used, because=because)


# Compiled callable -> keyword arguments of its torch.compile, where that was seen.
_seen: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


def remember(compiled: Any, keywords: Mapping[str, Any]) -> None:
    """Take note of how a callable was compiled, where it can be recognized later."""
    try:
        _seen[compiled] = dict(keywords)
    except TypeError:  # torch hands back objects of any class under disable=True
        return


def how_compiled(compiled: Any) -> dict[str, Any] | None:
    """Return the arguments that a callable was compiled with, None where that was not seen."""
    try:
        return _seen.get(inner(compiled))
    except TypeError:
        return None


def graph_use(compiled: Any) -> GraphUse:
    """Return whether a compiled function, method or module uses CUDA graphs.

    Args:
        compiled: What ``torch.compile`` has returned, or a module after ``module.compile()``.
    """
    compiled = inner(compiled)
    seen = how_compiled(compiled)
    if seen is not None:
        return use_by_arguments(seen)
    context = getattr(compiled, "__dict__", {}).get("dynamo_ctx")
    config = getattr(context, "compiler_config", None)
    if config is None:
        ask = getattr(compiled, "get_compiler_config", None)
        config = ask() if callable(ask) else None
    if isinstance(config, dict) and OPTION in config:
        return _by_option(config[OPTION], "its compiler options have")
    backend = getattr(context, "callback", None) or _backend_in(compiled)
    for _ in range(_DEEPEST):
        if backend is None:
            break
        if getattr(backend, "compiler_name", getattr(backend, "__name__", "")) == _BACKEND:
            return GraphUse(True, f"backend={_BACKEND!r}")
        options = getattr(backend, "config", None)
        if isinstance(options, dict):
            return _by_options(options, "its compiler options have")
        backend = getattr(backend, "_torchdynamo_orig_backend", None)
    return GraphUse(None)


def use_by_arguments(keywords: Mapping[str, Any]) -> GraphUse:
    """Return whether ``torch.compile`` with these arguments makes use of CUDA graphs."""
    backend, mode, options = (keywords.get(name) for name in ("backend", "mode", "options"))
    if backend == _BACKEND:
        return GraphUse(True, f"backend={_BACKEND!r}")
    if backend not in (None, "inductor"):
        return GraphUse(False if isinstance(backend, str) else None, f"backend={backend!r}")
    if options:
        return _by_options(options, "options has")
    if mode:
        by_mode = _mode_options(mode)
        if by_mode is None:
            return GraphUse(None)
        if OPTION in by_mode:
            return GraphUse(bool(by_mode[OPTION]), f"mode={mode!r}")
    return _by_default()


def _by_options(options: Mapping[str, Any], where: str) -> GraphUse:
    # torch takes the one spelling for the other.
    named = {str(name).replace("-", "_"): value for name, value in options.items()}
    return _by_option(named[OPTION], where) if OPTION in named else _by_default()


def _by_option(value: object, where: str) -> GraphUse:
    return GraphUse(bool(value), f"{where} {OPTION}={value!r}")


def _by_default() -> GraphUse:
    config = sys.modules.get("torch._inductor.config")
    value = getattr(getattr(config, "triton", None), "cudagraphs", None)
    if value is None:
        return GraphUse(None)
    return GraphUse(bool(value), f"torch._inductor.config.{OPTION} is {value!r}")


def _mode_options(mode: str) -> Mapping[str, Any] | None:
    inductor = sys.modules.get("torch._inductor")
    try:
        found: Mapping[str, Any] = inductor.list_mode_options(mode)  # type: ignore[union-attr]
    except Exception:  # not imported yet, or no such mode: torch will say so itself
        return None
    return found


def _backend_in(function: Any) -> Any:
    """Return the backend that a compiled function was made with, from its closure.

    Private to torch, and the only place where it stands under ``fullgraph=True``.
    """
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is not None and cells and "callback" in code.co_freevars:
        try:
            return cells[code.co_freevars.index("callback")].cell_contents
        except ValueError:
            return None
    return None


def without_graphs(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of ``torch.compile`` that make no use of CUDA graphs, and else are the same.

    The options are changed and not the name of the mode: that says nothing of CUDA graphs in some
    modes, and ``TORCHINDUCTOR_CUDAGRAPHS=1`` decides there.

    Raises:
        ValueError: The backend is one that cannot do without.
    """
    changed = dict(keywords)
    backend = changed.get("backend") or "inductor"
    if backend == _BACKEND:
        raise ValueError(f"backend={_BACKEND!r} is nothing but CUDA graphs")
    if backend != "inductor" or (changed.get("mode") and changed.get("options")):
        return changed  # it has none, or torch refuses both together itself
    mode, options = changed.pop("mode", None), changed.pop("options", None)
    if not options:
        # torch.compile is about to import it, and torch is there.
        options = import_module("torch._inductor").list_mode_options(mode or "default")
    changed["options"] = {**options, OPTION: False}
    return changed


def inner(compiled: Any) -> Any:
    """Return what torch has made, of a module compiled in place or of a wrapper of ours."""
    for _ in range(_DEEPEST):
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
