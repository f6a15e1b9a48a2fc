"""Keep libraries that a rule names in local symbol scope."""

from __future__ import annotations

import sys

from cudaguard.core.patterns import matches
from cudaguard.core.request import MISSED, Done, Refused, WouldDo
from cudaguard.features.symbol_scope import findings
from cudaguard.features.symbol_scope.facts import runtime_in
from cudaguard.files import os
from cudaguard.system.runtimes import GLOBAL_ON_PURPOSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.request import Outcome, Request


def keep_local(
    request: Request, subject: str, is_file: bool
) -> tuple[bool, Iterator[Outcome]] | None:
    """Decide about a library, or the extensions of a package, to be loaded with RTLD_GLOBAL."""
    if is_file:
        # Whatever a wide pattern matches: these serve others, and have to be global.
        if matches(subject, GLOBAL_ON_PURPOSE):
            return None
        runtime = runtime_in(request.name)
        if runtime:
            return False, _left(request, subject, runtime)
    stays_local = request.permit.acts
    return stays_local, _opened(request, subject, stays_local, is_file)


def _opened(request: Request, subject: str, stays_local: bool, is_file: bool) -> Iterator[Outcome]:
    if stays_local:
        yield Done(subject, findings.KEPT_LOCAL)
    else:
        yield WouldDo(findings.went_global(request, subject, is_file=is_file))


def _left(request: Request, subject: str, runtime: str) -> Iterator[Outcome]:
    yield Refused(findings.left_global(request.rule, subject, runtime, request.where))


def leave_global(request: Request) -> Iterator[Outcome]:
    """Map an extension with RTLD_GLOBAL, as asked for, if local scope would break it."""
    path = os.path.abspath(request.path or "")
    runtime = runtime_in(path)
    if not runtime:
        return
    import _ctypes

    try:
        _ctypes.dlopen(path, sys.getdlopenflags() | os.RTLD_GLOBAL)
    except OSError:  # the import itself will say so
        return
    request.can_raise = False  # it is mapped
    yield from _left(request, request.name, runtime)


def check_already_imported(request: Request) -> Iterator[Outcome]:
    """Yield MISSED where nobody keeps others apart from libraries that came before the rule.

    In the other modes `ScopeDetector` does.
    """
    if not request.permit.acts:
        yield MISSED  # type: ignore[misc]  # a word of this moment alone
