"""What a feature can say of the texts of errors."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudaguard.core.known_errors import KnownError
    from cudaguard.model import Finding


class Explainer:
    """What a feature can say of the texts of errors.

    Args:
        known: The messages that it knows.
        in_process: Returns what is to be said where the error is raised, with what is true of this
            process; None where that was said otherwise.
        adds: Ids of those for which it is asked.
        is_found: True if such an error is a finding, and not only a text that is explained.
    """

    def __init__(
        self,
        known: Iterable[KnownError],
        in_process: Callable[[Finding], Finding | None] = lambda finding: finding,
        adds: Iterable[str] = (),
        *,
        is_found: bool = False,
    ) -> None:
        self.known = tuple(known)
        self.ids = frozenset(adds)
        self.in_process, self.is_found = in_process, is_found
