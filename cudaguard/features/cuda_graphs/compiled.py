"""What ``torch.compile`` has returned: whether it uses CUDA graphs, and how it does without.

torch is asked where it is there; nothing is imported and nothing is compiled for it. The compiler
of a callable stands in its closure, which is private to torch; it reads its options when it
compiles.

Source: torch 2.13, ``torch/__init__.py`` (``compile``, ``_TorchCompileInductorWrapper``),
``torch/_dynamo/eval_frame.py``.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OPTION = "triton.cudagraphs"
_BACKEND = "cudagraphs"
_DEEPEST = 8  # wrappers around a compiler or a compiled callable that are looked through


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
    for _ in range(_DEEPEST):
        below = getattr(compiler, "_torchdynamo_orig_backend", None)
        if below is None or isinstance(getattr(compiler, "config", None), dict):
            break
        compiler = below
    return compiler


def _name_of(compiler: Any) -> str:
    return str(getattr(compiler, "compiler_name", getattr(compiler, "__name__", "")))


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
