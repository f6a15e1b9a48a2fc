"""The newest C++ runtime, loaded before the first package that has an old one.

The loader of Windows binds by base name: the first ``msvcp140.dll`` of a process serves all that
come later. What was linked by MSVC 14.40 or newer crashes with one that is older than 14.39.
`docs/howto/windows.md` has more.
"""

from __future__ import annotations

from cudaguard.core.findings import not_preloaded
from cudaguard.core.patterns import values_of
from cudaguard.core.request import Done, Refused, WouldDo
from cudaguard.features.windows_runtime import facts, findings
from cudaguard.features.windows_runtime.policy import (
    NEWEST_SERVES_ALL,
    Copy,
    is_too_old,
    newest,
)
from cudaguard.files import os, own_errors
from cudaguard.system.pe import read_pe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.request import Outcome, Request
    from cudaguard.model import Finding


def load_newest(request: Request) -> Iterator[Outcome]:
    """Load the newest copy of the runtime; tell if an older one was first, or if all are old."""
    client = facts.client_in(os.path.dirname(request.path)) if request.path else ""
    if not (client or request.permit.acts):  # nothing is known to fail yet
        return
    rule, about = request.rule, (request.rule, request.name, client, request.where)
    for name in values_of(rule, "load_newest_runtime"):
        there = facts.mapped(name)
        if there:
            loaded = Copy(read_pe(there).version, there, facts.package_of(there))
            if client and is_too_old(loaded.version):
                yield _left(request, findings.too_late(*about, loaded))
            continue
        copies = list(facts.copies(name))
        best = newest(copies)
        if best is None or is_too_old(best.version):
            if client and all(copy.version for copy in copies):
                yield _left(request, findings.none_is_new_enough(*about, best))
        elif request.permit.acts and best.version:
            try:
                facts.load(best.path, NEWEST_SERVES_ALL[name])
            except own_errors(OSError) as error:
                yield Refused(not_preloaded(rule, request.name, error), cause=error)
            else:
                yield Done(best.path, f"loaded before {request.name}, as the newest copy")


def _left(request: Request, finding: Finding) -> Outcome:
    return Refused(finding) if request.permit.acts else WouldDo(finding)
