"""What stands between a failure of ours and the program that is being looked at.

Each hook calls what is ours in a net of its own: ``except BaseException as error`` of which
`contained` says whether it is a failure of ours, which is told, or is to be raised. The function
that is hooked is called outside of it, once, whatever becomes of us.
"""

from __future__ import annotations

from cudaguard.core import own_imports
from cudaguard.errors import CudaGuardError, CudaGuardWarning
from cudaguard.files import is_refusal, passes, standard_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Protocol

    class Told(Protocol):
        """Whoever is told of failures."""

        def broken(self, what: str, error: Exception) -> None:
            """Take note that the guard itself failed; never raises."""


own_imports.is_refusal, own_imports.standard_library = is_refusal, standard_library
# Raised by callbacks on purpose (`strict`, or a warning the user turned into an error).
ON_PURPOSE = (CudaGuardError, CudaGuardWarning)


def contained(host: Told, what: str, error: BaseException) -> bool:
    """Return True for a failure of ours, once it is told; any other error is to be raised.

    Args:
        host: Is told.
        what: What we were doing, in words that follow the name of a callback if there is one.
        error: What has come up.
    """
    try:
        if issubclass(type(error), ON_PURPOSE) or passes(error):
            return False
        host.broken(what, error)  # type: ignore[arg-type]  # no BaseException is a failure
    except Exception as second:
        if passes(second):
            raise
    return True


class Net:
    """A net within a hook: hands a failure of ours to `failed`.

    Args:
        failed: Is called with it.
        interrupted: Is called if something else ends the block, which passes.
    """

    __slots__ = ("_failed", "_interrupted")

    def __init__(
        self, failed: Callable[[Exception], None], interrupted: Callable[[], None] | None = None
    ) -> None:
        self._failed, self._interrupted = failed, interrupted

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            return False
        if issubclass(type(error), ON_PURPOSE):
            return False
        if isinstance(error, Exception) and not passes(error):
            self._failed(error)
            return True
        if self._interrupted is not None:
            self._interrupted()
        return False
