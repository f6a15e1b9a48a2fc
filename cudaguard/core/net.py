"""What stands between a failure of ours and the program that is being looked at."""

from __future__ import annotations

from cudaguard.core.loader import ON_PURPOSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Net:
    """Hands a failure of ours to `failed`; what is raised on purpose passes."""

    __slots__ = ("_failed",)

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, ON_PURPOSE):
            return False
        self._failed(error)
        return True
