"""Our frames between the importing statement and the module that is imported."""

from __future__ import annotations

from cudaguard.files import passes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Function = TypeVar("Function")


def of_import_system(function: Function) -> Function:
    """Have the frames of a function counted among those of the import system.

    What a module warns of on behalf of who imports it (``stacklevel=2``) is that one's line, and is
    shown or not by the filters for that one. ``warnings`` finds the line by passing by the files
    with ``importlib`` and ``_bootstrap`` in their names, as do others who look for the importer.
    """
    changed: Any = function
    changed.__code__ = changed.__code__.replace(
        co_filename=f"<frozen importlib._bootstrap, {changed.__module__}>"
    )
    return function


# What `raise` itself uses: a class may have its own idea of attributes, as frozen dataclasses do.
_traceback: Any = BaseException.__traceback__


def hide_frame(error: BaseException) -> None:
    """Drop the frame that catches `error`: it is none of the user's business (3.11+)."""
    try:
        traceback = _traceback.__get__(error)
        if traceback is not None:
            _traceback.__set__(error, traceback.tb_next)
    except Exception as failure:  # in the way of the error that is being raised
        if passes(failure):
            raise
