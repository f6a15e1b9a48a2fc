"""The newest C++ runtime, loaded before the first package that has an old one.

That is before what the rule watches, which may load it by ctypes or change the search path, and
before any extension that needs it.

The loader of Windows binds by base name: all that come later use the first ``msvcp140.dll`` of a
process. What was linked by MSVC 14.40 or newer crashes with one that is older than 14.39.
"""

from __future__ import annotations

from cudaguard.core.findings import not_preloaded
from cudaguard.core.patterns import values_of
from cudaguard.core.request import Done, Refused, WouldDo
from cudaguard.features.windows_runtime import facts, findings
from cudaguard.features.windows_runtime.facts import NEWEST_FOR_ALL, RuntimeCopy, newest
from cudaguard.files import own_errors
from cudaguard.kernel import has_ctypes
from cudaguard.system.pe import is_too_old, read_pe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudaguard.core.request import Outcome, Request
    from cudaguard.model import Finding


def load_newest(request: Request) -> Iterator[Outcome]:
    """Load the newest copy of the runtime; tell if an older one was first, or if all are old."""
    if not (request.permit.acts or has_ctypes() or _client(request)):
        return  # looking takes ctypes, whose import is a change
    for name in values_of(request.rule, "load_newest_runtime"):
        there = facts.mapped(name)
        if there:
            loaded = RuntimeCopy(read_pe(there).version, there, facts.package_of(there))
            if is_too_old(loaded.version):
                yield from _left(request, findings.too_late, loaded)
            continue
        copies = list(facts.copies(name))
        best = newest(copies)
        if best is None or is_too_old(best.version):
            if all(copy.version for copy in copies):
                yield from _left(request, findings.none_is_new_enough, best)
        elif request.permit.acts and best.version:  # otherwise nothing is known to fail yet
            try:
                facts.load(best.path, NEWEST_FOR_ALL[name])
            except own_errors(OSError) as error:
                finding = not_preloaded(request.rule, request.name, error)
                yield Refused(finding, cause=error)
            else:
                yield Done(best.path, f"loaded before {request.name}, as the newest copy")


def _left(
    request: Request, worded: Callable[..., Finding], copy: RuntimeCopy | None
) -> Iterator[Outcome]:
    """Tell of an old copy, if the package needs a newer one."""
    client = _client(request)
    if client:
        package = request.name.partition(".")[0]
        finding = worded(request.rule, package, client, request.where, copy)
        yield Refused(finding) if request.permit.acts else WouldDo(finding)


def _client(request: Request) -> str:
    return facts.client_in(request.path) if request.path else ""
