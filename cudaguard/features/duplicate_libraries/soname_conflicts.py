"""A library that another package has, under the same name and built for other libraries.

auditwheel names what it puts into a wheel by the contents that it had before: libhdf5_hl has one
name in the wheels of h5py and netCDF4, and needs another libhdf5 in each. The loader takes the
first file of a name for both, and the second package works with two copies of libhdf5. So it gets
its own file, as a copy in memory with another name; what needs it is copied too, and needs that.
"""

from __future__ import annotations

from cudaguard.files import os
from cudaguard.kernel.loads import NAMESAKE
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.memory_copies import copy_paths, keep_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudaguard.core.dispatch import Dispatch


class SonameDetector:
    """Keeps the libraries of two packages apart."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core

    def closer_look(self, library: str) -> tuple[str, Callable[[bool], None]] | None:
        """Give a library that is about to be mapped the files of its own package.

        Return the file to be mapped instead, if one has to be, and what to call afterwards.
        """
        if library in copy_paths:
            return copy_paths[library], lambda _: None
        why, _ = self._core.kernel.of_loads().judged(library)
        is_meant = why.endswith(NAMESAKE) and self._core.permit().acts
        how = keep_apart(library, is_refused=False) if is_meant else ""
        if how:
            from cudaguard.features.duplicate_libraries.findings import ANOTHER_FILE

            subject = os.path.basename(library)
            self._core.reporter.repaired(ANOTHER_FILE.id, "keep_apart", subject, how)
            return copy_paths[library], lambda _: None
        return None
