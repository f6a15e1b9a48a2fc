"""What a feature can say of the texts of errors."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudaguard.model import Finding


class Explainer:
    """What a feature can say of the texts of errors, beyond what `KNOWN_ERRORS` has.

    Args:
        explain: Returns what a text means, None if it is not known.
        ids: The ids of what it explains, and of what it adds to.
        in_process: Returns what is to be said where the error is raised, with what is true of this
            process; None where that was said otherwise.
        about: Returns what an id is about, without a text; None where the core knows.
        is_found: True if such an error is a finding, and not only a text that is explained.
    """

    def __init__(
        self,
        explain: Callable[[str], Finding | None] = lambda _: None,
        ids: Iterable[str] = (),
        in_process: Callable[[Finding], Finding | None] = lambda finding: finding,
        about: Callable[[str], Finding | None] = lambda _: None,
        *,
        is_found: bool = False,
    ) -> None:
        self.explain, self.ids, self.about = explain, frozenset(ids), about
        self.in_process, self.is_found = in_process, is_found
