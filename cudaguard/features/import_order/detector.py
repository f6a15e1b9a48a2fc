"""LD_LIBRARY_PATH that was set in the running process, where it has no effect."""

from __future__ import annotations

from cudaguard.core.caller import caller_frame, describe
from cudaguard.elf.process import at_start
from cudaguard.features.import_order.messages import search_path_too_late
from cudaguard.files import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.dispatch import Dispatch

_SEARCH_PATH = "LD_LIBRARY_PATH"


class SearchPathDetector:
    """Tells of libraries that lie in a folder which was added too late.

    Args:
        core: Is told.
    """

    def __init__(self, core: Dispatch) -> None:
        self._core = core

    def not_found(self, missing: str) -> None:
        """Look why a library was not found.

        Args:
            missing: The library, as the loader names it.
        """
        if os.sep in missing:  # a path: the variable has no part in that
            return
        said = os.environ.get(_SEARCH_PATH, "")
        read = at_start(_SEARCH_PATH).split(":") if said else []
        late = [folder for folder in said.split(":") if folder and folder not in read]
        name = os.path.basename(missing)
        found = next((f for f in late if os.path.exists(os.path.join(f, name))), None)
        if found is not None:
            frame = caller_frame()
            self._core.reporter.found(search_path_too_late(name, found, describe(frame)), frame)
