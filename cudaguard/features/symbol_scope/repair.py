"""Keep libraries that a rule names in local symbol scope.

The mode of a load is changed before it happens, so nothing has to be put back.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from cudaguard.core.repairs import MISSED, Done, Refused, WouldDo
from cudaguard.core.rule import values_of
from cudaguard.elf.interposition import is_cxx_runtime, load_of
from cudaguard.elf.process import mapped_libraries, serving_file
from cudaguard.elf.reader import CXX_RUNTIME, read_elf
from cudaguard.features.symbol_scope import findings
from cudaguard.files import matches, os, own_errors
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.runtimes import GLOBAL_ON_PURPOSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaguard.core.repairs import Outcome, Request
    from cudaguard.core.rule import Rule


def keep_local(
    request: Request, subject: str, is_file: bool
) -> tuple[bool, Iterator[Outcome]] | None:
    """Decide about a library, or the extensions of a package, to be loaded with RTLD_GLOBAL."""
    if is_file:
        # Whatever a wide pattern matches: these serve others, and have to be global.
        if matches(subject, GLOBAL_ON_PURPOSE):
            return None
        if runtime := runtime_in(request.name):
            return False, iter((_left(request, subject, runtime),))
    if request.permit.acts:
        return True, iter((Done(subject, findings.KEPT_LOCAL),))
    return False, iter((WouldDo(findings.went_global(request, subject, is_file=is_file)),))


def _left(request: Request, subject: str, runtime: str) -> Refused:
    return Refused(findings.left_global(request.rule, subject, runtime, request.where))


def leave_global(request: Request) -> Iterator[Outcome]:
    """Map an extension with RTLD_GLOBAL, as asked for, if local scope would break it."""
    path = os.path.abspath(request.path or "")
    if not (runtime := runtime_in(path)):
        return
    import _ctypes

    try:
        _ctypes.dlopen(path, sys.getdlopenflags() | os.RTLD_GLOBAL)
    except OSError:  # the import itself will say so
        return
    request.can_raise = False  # it is mapped
    yield _left(request, request.name, runtime)


def check_libraries_before(request: Request) -> Iterator[Outcome]:
    """Yield MISSED where nobody keeps others apart from libraries that came before the rule.

    In the other modes `ScopeDetector` does.
    """
    if not request.permit.acts:
        yield MISSED  # type: ignore[misc]  # a word of this moment alone


# --- Libraries that have to stay global -----------------------------------------------------------
# One with a C++ runtime of its own (``-static-libstdc++``) that it exports. The loader keeps one
# object per process of each ``STB_GNU_UNIQUE`` name, whatever its scope and visibility. If
# libstdc++.so.6 is loaded after such a library, it shares some of the ``std::...::id`` objects with
# it anyway. With the library in the global scope it uses all of the other runtime as well. With
# local scope it would use halves of the two: streams write nothing, or throw ``std::bad_cast``. A
# libstdc++.so.6 that was there first is on its own, and the library belongs out of the way.
# Source: ``elf/dl-lookup.c`` of glibc (``do_lookup_unique``).


def runtime_in(library: str) -> str:
    """Return the file that a load by path or soname maps and that has to be global, or ""."""
    path = os.path.abspath(library) if os.sep in library else serving_file(library)
    try:
        from cudaguard.elf.resident import Resident

        with ExitStack() as opened:
            resident = opened.enter_context(Resident())
            is_there = resident.handle(CXX_RUNTIME)
            new = [] if is_there else load_of(path, resident, opened)[0]
            return _first_runtime(member.file for member in new)
    except own_errors(OSError, AttributeError, ImportError):
        return ""


def runtime_among(files: Iterable[str]) -> str:
    """Return the one of the mapped files that has to stay global, or ""."""
    wanted = [file for file in files if read_elf(file).runtime]
    if not wanted:
        return ""
    mapped = [library.file for library in mapped_libraries()]
    return _first_runtime(file for file in mapped if file in wanted or is_cxx_runtime(file))


def _first_runtime(files: Iterable[str]) -> str:
    """Return the first file that exports a runtime, "" if that is libstdc++.so.6 or none."""
    first = next((f for f in files if is_cxx_runtime(f) or read_elf(f).runtime), "")
    return "" if is_cxx_runtime(first) else first


# --- What a rule names ----------------------------------------------------------------------------


def names_library(rule: Rule, library: str) -> bool:
    """Return True if the rule names this library as one to keep out of the global scope."""
    return matches(os.path.basename(library), values_of(rule, "load_local"))


def packages_of(rule: Rule) -> frozenset[str]:
    """Return the top-level packages that a rule is about, in lower case.

    Folders are named after modules (``decord``), what wheels bundle after the distribution
    (``eva_decord.libs``).
    """
    from cudaguard.system.facts import required_name

    names = (
        *(name.partition(".")[0] for name in rule.watch),
        *(required_name(item).replace("-", "_") for item in rule.dist),
    )
    return frozenset(name.lower() for name in names)
