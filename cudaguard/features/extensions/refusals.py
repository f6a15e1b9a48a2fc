"""Why the dynamic loader has refused an extension or library, and which files end too early."""

from __future__ import annotations

from cudaguard.elf.forecast import Forecast, Lack, forecast
from cudaguard.elf.library_facts import static_tls_of
from cudaguard.elf.process import mapped_files
from cudaguard.elf.reader import read_elf
from cudaguard.errors import ExtensionError
from cudaguard.features.extensions import findings
from cudaguard.files import os
from cudaguard.hooks.caller import caller_frame, describe
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.extensions import OF_TORCH, check_of_forecast

if TYPE_CHECKING:
    from types import FrameType

    from cudaguard.core.findings import Finding

NO_STATIC_TLS = ": cannot allocate memory in static TLS block"
_THERE_AT_START = ("libc.so.", "ld-", "libpython", "python")  # they have room of their own
_UNDEFINED, _NOT_FOUND = "undefined symbol: ", ": cannot open shared object file"
_NO_VERSION = ": version `"
# Causes that hold for any library.
_CERTAIN = ("older-library", "library-missing", "symbol-version", "cuda-major", "truncated",
            "wrong-machine", "not-elf")  # fmt: skip
# How glibc's loader begins or ends what it says of a file; anything else is an extension's own.
_OF_THE_FILE = (
    "invalid ELF header", "file too short", "wrong ELF class", "cannot read file data",
    "cannot dynamically load", "object file has no dynamic section", "ELF file data encoding",
    "only ET_DYN and ET_EXEC can be loaded",
)  # fmt: skip


def refuse_truncated(
    path: str, name: str | None = None
) -> tuple[Finding, ExtensionError, FrameType | None] | None:
    """Return what is wrong with a file that ends too early, and the error that says so."""
    check = check_of_forecast(forecast(path))
    if check.cause != "truncated":
        return None
    frame = caller_frame()
    error = ExtensionError(findings.error_text(check, ""), name=name, path=path)
    return findings.truncated(check, describe(frame)), error, frame


def looked_into(
    message: str, path: str, name: str | None, where: str
) -> tuple[Finding, tuple[str, ...], ExtensionError] | None:
    """Return why a load was refused, the libraries that are missing, and an error that says so.

    Of a library, which has no `name`, and is none for torch, only what is certain: who has its
    functions is unknown.
    """
    found = _as_in_message(forecast(path), message)
    check = check_of_forecast(found) if found is not None else None
    if check is None or check.ok is not False:
        return None
    is_known = name is not None or not OF_TORCH.isdisjoint(read_elf(path).needed)
    if not is_known and check.cause not in _CERTAIN:
        return None
    finding = findings.not_loaded(check, message, where, is_import=name is not None)
    error = ExtensionError(findings.error_text(check, message), name=name, path=path)
    return finding, tuple(check.missing_libraries), error


def no_static_tls(message: str, where: str) -> Finding:
    """Return who has taken the static TLS that a library was refused for want of.

    A process sets aside a fixed number of bytes for the thread-local variables of libraries that
    it loads later and that want them at a fixed place (DF_STATIC_TLS: OpenMP runtimes,
    allocators). Who comes last gets nothing, so the order of imports decides. The error names the
    library only. Source: ``elf/dl-reloc.c`` of glibc (``_dl_try_allocate_static_tls``).
    """
    library = message.partition(NO_STATIC_TLS)[0]
    files = (f for f in mapped_files() if not os.path.basename(f).startswith(_THERE_AT_START))
    users = sorted(((static_tls_of(f, or_takes=True), f) for f in files), reverse=True)
    return findings.no_room(
        library, static_tls_of(library), [user for user in users if user[0]], where
    )


def _as_in_message(found: Forecast, message: str) -> Forecast | None:
    """Return a forecast that agrees with the loader's words; None if those are not the loader's.

    What it says is certain: it stays when the forecast has missed it.
    """
    if _UNDEFINED in message:
        symbol = message.partition(_UNDEFINED)[2].partition(",")[0].strip()
        if any(lack.name == symbol for lack in found.symbols):
            return found._replace(libraries=())  # it got all of them: the search path was another
        # It may be one of the libraries that the extension brings that needs it.
        needer = message.partition(f": {_UNDEFINED}")[0]
        needer = needer if os.path.isabs(needer) else found.path
        return Forecast(found.path, needed=found.needed, symbols=(Lack(symbol, needer),))
    if _NOT_FOUND in message:
        library = message.partition(_NOT_FOUND)[0]
        if found.problem or any(lack.name == library for lack in found.libraries):
            return found
        if library in (found.path, os.path.basename(found.path)) or os.sep in library:
            return None
        return Forecast(found.path, needed=found.needed, libraries=(Lack(library, found.path),))
    if _NO_VERSION in message and "not found (required by" in message:
        return found if found.versions else None
    if message.startswith("DLL load failed"):  # Windows, which names neither library nor function
        return found
    if any(words in message for words in _OF_THE_FILE) and found.problem not in ("", "unknown"):
        return found
    return None
