"""The newest C++ runtime, loaded before the first package that has an old one.

That is before what the rule watches, which may load it by ctypes or change the search path, and
before any extension that needs it.

The loader of Windows binds by base name: all that come later use the first ``msvcp140.dll`` of a
process. What was linked by MSVC 14.40 or newer crashes with one that is older than 14.39.
"""

from __future__ import annotations

import sys

from cudaguard.core.findings import not_preloaded
from cudaguard.core.repairs import Done, Refused, WouldDo
from cudaguard.elf.process import mapped_files
from cudaguard.features.windows_runtime import findings
from cudaguard.features.windows_runtime.findings import RuntimeCopy
from cudaguard.files import names_in, os, own_errors
from cudaguard.kernel import has_ctypes
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.facts import Packages
from cudaguard.system.pe import MSVCP, in_wheels, is_too_old, read_pe, system_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cudaguard.core.findings import Finding
    from cudaguard.core.repairs import Outcome, Request


def load_newest(request: Request, *_: object) -> Iterator[Outcome]:
    """Load the newest copy of the runtime; tell if an older one was first, or if all are old."""
    if not (request.permit.acts or has_ctypes() or _client(request)):
        return  # looking takes ctypes, whose import is a change
    if there := mapped(MSVCP):
        owner = Packages().of(os.path.realpath(os.path.dirname(there)))
        loaded = RuntimeCopy(read_pe(there).version, there, owner)
        if is_too_old(loaded.version):
            yield from _left(request, findings.old_runtime, loaded)
        return
    copies = list(copies_of_runtime())
    best = max(copies, key=lambda copy: copy.version, default=None)  # of equal ones the first
    if best is None or is_too_old(best.version):
        if all(copy.version for copy in copies):
            yield from _left(request, findings.none_is_new_enough, best)
    elif request.permit.acts and best.version:  # otherwise nothing is known to fail yet
        try:
            load_family(best.path)
        except own_errors(OSError) as error:
            yield Refused(not_preloaded(request.rule, request.name, error), cause=error)
        else:
            yield Done(best.path, f"loaded before {request.name}, as the newest copy")


def _left(
    request: Request, worded: Callable[..., Finding], copy: RuntimeCopy | None
) -> Iterator[Outcome]:
    """Tell of an old copy, if the package needs a newer one."""
    if client := _client(request):
        finding = worded(request.rule, request.name.partition(".")[0], client, request.where, copy)
        yield Refused(finding) if request.permit.acts else WouldDo(finding)


def _client(request: Request) -> str:
    return client_in(request.path) if request.path else ""


# --- Copies of the C++ runtime: which one this process has, and which ones there are --------------

# What must come from one folder; all clients can use the newest.
_FAMILY = ("msvcp140", "concrt140", "vcruntime140_threads")
_MOST = 64  # files of a package that are looked at


def mapped(name: str) -> str:
    """Return the file of a library that is loaded, of several the one that all use; else empty."""
    import ctypes  # noqa: F401  # by which it is seen

    return next((file for file in mapped_files() if os.path.basename(file).lower() == name), "")


def copies_of_runtime() -> Iterator[RuntimeCopy]:
    """Yield the copies for this kind of processor; Windows' own first."""
    import _winapi

    program = str(_winapi.GetModuleFileName(0))  # type: ignore[attr-defined,unused-ignore]
    places = ((system_folder(), "Windows"), (os.path.dirname(program), "Python's folder"))
    found = ((os.path.join(folder, MSVCP), owner) for folder, owner in places)
    for path, owner in (*found, *in_wheels(MSVCP, sys.path)):
        file = read_pe(path)
        if file.machine == read_pe(program).machine:
            yield RuntimeCopy(file.version, path, owner)


def client_in(path: str) -> str:
    """Return what needs a new runtime, of an extension or of a package; empty if nothing does."""
    folder = os.path.dirname(path)
    places = (os.path.join(folder, "lib"), os.path.join(folder, "capi"), folder)
    files = [os.path.join(place, name) for place in places for name in names_in(place)]
    libraries = [file for file in files if file.endswith((".dll", ".pyd"))][:_MOST]
    if path.endswith(".pyd"):
        libraries = [path, *(os.path.join(folder, name) for name in read_pe(path).imports)]
    return next((file for file in libraries if read_pe(file).locks_without_init), "")


def load_family(path: str) -> None:
    """Load a runtime by its path, and what beside it belongs to it and is not loaded yet."""
    import ctypes

    windll: Any = ctypes.WinDLL  # type: ignore[attr-defined,unused-ignore]
    windll(path)
    folder, machine = os.path.dirname(path), read_pe(path).machine
    for name in names_in(folder):
        if name.lower().startswith(_FAMILY) and name.lower().endswith(".dll") and not mapped(name):
            file = os.path.join(folder, name)
            # PySide6 6.6 has a concrt140.dll for 32 bits beside others for 64.
            if read_pe(file).machine == machine:
                windll(file)
