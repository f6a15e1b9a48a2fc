"""``os``, and ``open`` as `open_file`, as they are when the guard comes.

Programs, and their tests above all, put stand-ins into ``os``, ``os.path`` and ``builtins``:
``mock.patch("os.open")``. Those are for the program: they must neither count our calls nor answer
them. A name that is imported from ``os`` is not enough, as most of our modules are loaded later,
and as the functions of ``os.path`` call those of ``os`` in turn.

Whoever has to see what the program has put into ``os.environ`` sees it here too, and whoever wants
to see ``os.environ`` replaced imports ``os`` itself.

What an audit hook of the program refuses to us is not readable, whatever the hook raises.
"""

from __future__ import annotations

import io
import os as _os

from cudaguard.files.foreign import is_refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

__all__ = ["open_file", "os"]
_Function = type(lambda: None)
_FORBIDDEN = 13  # EACCES
_AUDITED = ("open", "listdir", "scandir")


def _refusable(function: Callable[..., Any]) -> Any:
    """Return a function like it, to which a refusal by an audit hook is one by the system."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not is_refusal(error):
                raise
        raise PermissionError(_FORBIDDEN, "refused by the program", *args[:1])

    return call


def _copy(module: ModuleType, **changed: ModuleType) -> ModuleType:
    """Return a module like it, of which the functions see nothing but each other."""
    copy = type(module)(f"{__name__}.{module.__name__}")
    names = vars(copy)
    names.update({**vars(module), **changed, "__name__": copy.__name__})
    for name, value in vars(module).items():
        if type(value) is _Function:
            parts = value.__code__, names, value.__name__, value.__defaults__, value.__closure__
            names[name] = own = _Function(*parts)
            own.__kwdefaults__ = value.__kwdefaults__
    return copy


open_file = io.open
if not TYPE_CHECKING:
    open_file = _refusable(io.open)
    os = _copy(_os)
    vars(os).update({name: _refusable(getattr(os, name)) for name in _AUDITED})
    os.path = _copy(_os.path, os=os)
