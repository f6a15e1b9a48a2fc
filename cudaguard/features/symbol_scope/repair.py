"""Symbol scope: keep names local, or take them back."""

from __future__ import annotations

import sys

from cudaguard.core.patterns import matches, values_of
from cudaguard.core.request import MISSED, Done, Refused, WouldDo
from cudaguard.features.symbol_scope import findings
from cudaguard.features.symbol_scope.facts import runtime_in
from cudaguard.files import os
from cudaguard.system.symbol_families import GLOBAL_ON_PURPOSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudaguard.core.request import Outcome, Request

# Rules whose libraries have become global all the same, and whose names are to be hidden.
wanted_back: set[str] = set()


# --- load_local ----------------------------------------------------------------------------------


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


# --- hide_symbols --------------------------------------------------------------------------------


def hide_after(request: Request) -> Callable[[BaseException | None], Iterator[Outcome]] | None:
    """Hide what the import of a module has brought, whether it succeeds or not."""

    def close(_: BaseException | None) -> Iterator[Outcome]:
        request.scan_missed_loads()  # C code may have loaded something since
        # A rule that keeps its libraries local has nothing to do here, unless names were seen to
        # come past it.
        is_idle = values_of(request.rule, "load_local") and request.rule.id not in wanted_back
        if not is_idle:
            yield from hide(request)

    return close if request.permit.acts else None


def check_already_imported(request: Request) -> Iterator[Outcome]:
    """Hide the names of libraries that came before the rule."""
    if request.permit.acts and values_of(request.rule, "hide_symbols"):
        yield from hide(request, is_late=True)
    else:
        yield MISSED  # type: ignore[misc]  # a word of this moment alone


def hide(request: Request, *, is_late: bool = False) -> Iterator[Outcome]:
    """Hide the names of the libraries that a rule names, if they are global.

    Args:
        request: For a rule with the action ``hide_symbols``.
        is_late: True if the module was imported before the rule was in force.
    """
    from cudaguard.features.symbol_scope.hiding import hide_symbols  # which takes ctypes

    rule = request.rule
    wanted_back.discard(rule.id)
    done = hide_symbols(rule)
    if done.state in ("absent", "local"):
        return
    if is_late:
        left = findings.taken_back_late(rule, request.name, done, at_start=request.at_start)
    else:
        left = findings.not_taken_back(rule, request.name, done)
    if done.state in ("done", "half"):
        subject = os.path.basename(done.library)
        how, fault = findings.hidden(done), left if done.reason or done.bound or done.left else None
        yield Done(subject, how, verb="hide_symbols", left=fault)
    else:
        yield Refused(left)
