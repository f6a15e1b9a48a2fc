"""Libraries that are refused for want of static TLS: who has taken the room, and what to do.

A process sets aside a fixed number of bytes for the thread-local variables of libraries that it
loads later and that want them at a fixed place (DF_STATIC_TLS: OpenMP runtimes, allocators). Who
comes last gets nothing, so the order of imports decides. The error names the victim only.

Source: ``elf/dl-reloc.c`` of glibc (``_dl_try_allocate_static_tls``); ``ld.so(8)``, tunables.
"""

from __future__ import annotations

from cudaguard.core.caller import UserLine, caller_frame, describe
from cudaguard.core.known_errors import text_of
from cudaguard.elf.mapped import mapped_files
from cudaguard.elf.static_tls import static_tls_of
from cudaguard.features.extensions import messages as wording
from cudaguard.files import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.model import Finding

_SAID = ": cannot allocate memory in static TLS block"
_THERE_AT_START = ("libc.so.", "ld-")  # what these want is set aside besides


class StaticTlsDetector:
    """Tells of a library that had no room left, once the error about it matters.

    Args:
        core: Is told.
    """

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._kept: dict[str, tuple[Finding, UserLine | None]] = {}  # by the loader's words

    def load_failed(self, error: Exception, _: str) -> None:
        """Look why a library was refused; a program that does without it hears nothing."""
        said = text_of(error)
        victim = said.partition(_SAID)[0]
        if _SAID not in said or said in self._kept:
            return
        frame = caller_frame()
        users = sorted(
            (
                (size, file)
                for file in mapped_files()
                if not os.path.basename(file).startswith(_THERE_AT_START)
                for size in [static_tls_of(file)]
                if size
            ),
            reverse=True,
        )
        wanted = static_tls_of(victim)
        finding = wording.no_room(victim, wanted, users, describe(frame))
        self._kept[said] = finding, None if frame is None else UserLine(frame)
        self._core.end.put_up()

    def error_passes(self, error: BaseException) -> None:
        """Tell of it if this error is about it."""
        text = text_of(error)
        for said in [said for said in self._kept if said in text]:
            finding, place = self._kept.pop(said)
            self._core.reporter.found(finding, place)
