"""Why the dynamic loader has refused an extension or library, and which files end too early."""

from __future__ import annotations

from cudaguard.elf.forecast import Forecast, Lack, forecast
from cudaguard.elf.library_facts import static_tls_of
from cudaguard.elf.process import mapped_files
from cudaguard.elf.reader import read_elf
from cudaguard.errors import ExtensionError
from cudaguard.features.extensions import findings
from cudaguard.files import os
from cudaguard.hooks.caller import UserLine, caller_frame, describe, frame_outside_of
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system.extensions import OF_TORCH, check_of_forecast

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import FrameType

    from cudaguard.core.findings import Finding
    from cudaguard.elf.forecast import ExtensionCheck

NO_STATIC_TLS = ": cannot allocate memory in static TLS block"
_THERE_AT_START = ("libc.so.", "ld-")  # what these want is set aside besides
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


class Refusal(NamedTuple):
    """Report of a load that the loader has refused."""

    message: str  # by the loader
    finding: Finding
    place: UserLine | None  # that asked for it
    missing: tuple[str, ...] = ()  # libraries that were not found
    is_carried: bool = False  # an error of ours was raised that says it


def extension_refused(spec: ModuleSpec, error: ImportError) -> tuple[Refusal, ImportError] | None:
    """Return why the loader has refused an extension, and an error that says so."""
    if error.path != spec.origin:  # not the loader's: it was mapped, and says so itself
        return None
    message = str(error)
    check = _check_by_message(spec.origin or "", message)
    if check is None:
        return None
    refusal = _refusal(check, message, caller_frame(), is_import=True)
    text = findings.error_text(check, message)
    return refusal, ExtensionError(text, name=error.name, path=error.path)


def library_refused(path: str, message: str) -> Refusal | None:
    """Return why a library was not loaded by its path.

    Of one that is no extension for torch only what is certain: who has its functions is unknown.
    """
    if NO_STATIC_TLS in message:
        return _no_static_tls(message)
    check = _check_by_message(path, message)
    if check is None:
        return None
    is_for_torch = not OF_TORCH.isdisjoint(read_elf(path).needed)
    if not is_for_torch and check.cause not in _CERTAIN:
        return None
    return _refusal(check, message, frame_outside_of("torch"), is_import=False)


def _no_static_tls(message: str) -> Refusal:
    """Return who has taken the static TLS that a library was refused for want of.

    A process sets aside a fixed number of bytes for the thread-local variables of libraries that
    it loads later and that want them at a fixed place (DF_STATIC_TLS: OpenMP runtimes,
    allocators). Who comes last gets nothing, so the order of imports decides. The error names the
    library only. Source: ``elf/dl-reloc.c`` of glibc (``_dl_try_allocate_static_tls``).
    """
    library, frame = message.partition(NO_STATIC_TLS)[0], caller_frame()
    files = (f for f in mapped_files() if not os.path.basename(f).startswith(_THERE_AT_START))
    users = sorted(((static_tls_of(file), file) for file in files), reverse=True)
    finding = findings.no_room(
        library, static_tls_of(library), [user for user in users if user[0]], describe(frame)
    )
    return Refusal(message, finding, None if frame is None else UserLine(frame))


def _check_by_message(path: str, message: str) -> ExtensionCheck | None:
    found = _as_in_message(forecast(path), message)
    check = check_of_forecast(found) if found is not None else None
    return check if check is not None and check.ok is False else None


def _refusal(
    check: ExtensionCheck, message: str, frame: FrameType | None, *, is_import: bool
) -> Refusal:
    finding = findings.not_loaded(check, message, describe(frame), is_import=is_import)
    place = None if frame is None else UserLine(frame)
    return Refusal(message, finding, place, tuple(check.missing_libraries))


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
