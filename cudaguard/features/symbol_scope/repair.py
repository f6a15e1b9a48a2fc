"""Keep libraries that a rule names in local symbol scope.

The mode of a load is changed before it happens, so nothing has to be put back.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from cudaguard.core.request import MISSED, Done, Refused, WouldDo
from cudaguard.core.rule import values_of
from cudaguard.elf.interposition import is_cxx_runtime, load_of
from cudaguard.elf.process import mapped_libraries, serving_file, uses_glibc
from cudaguard.elf.reader import CXX_RUNTIME, SYMBOL_KIND, ElfFile, is_runtime_id, read_elf
from cudaguard.elf.search_path import SearchPath
from cudaguard.elf.symbols import SharedObject
from cudaguard.errors import ImportOrderError
from cudaguard.features.symbol_scope import findings
from cudaguard.files import matches, os, own_errors, read_start
from cudaguard.hooks.caller import caller_frame, describe
from cudaguard.system.runtimes import GLOBAL_ON_PURPOSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.request import Outcome, Request
    from cudaguard.core.rule import Rule


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
    return _first_runtime(_mapped_by(path))


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


def _mapped_by(path: str) -> list[str]:
    """Return what the loader would map for a library now, in its order; none beside libstdc++."""
    try:
        from cudaguard.elf.resident import Resident

        with ExitStack() as opened:
            resident = opened.enter_context(Resident())
            is_there = resident.handle(CXX_RUNTIME)
            return [] if is_there else [one.file for one in load_of(path, resident, opened)[0]]
    except own_errors(OSError, AttributeError, ImportError):
        return []


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


# --- Extensions linked with -static-libstdc++, that show this runtime to everyone ----------------
# The loader keeps one ``std::...::id`` for the process (STB_GNU_UNIQUE), by which the facets of a
# locale are numbered, and of the rest of the runtime there are two. Whoever comes second writes no
# numbers. So the extension is mapped from a copy in memory in which these objects are its own: as a
# compiler makes them that knows no such binding (clang, or GCC with -fno-gnu-unique).
# Source: ``elf/dl-lookup.c`` of glibc (``do_lookup_unique``); ``memfd_create(2)``.

_ID = "CG813"
_PRIVATE = "mapped from a copy in memory, in which its C++ runtime is its own"
_LARGEST = 1 << 24  # bytes of an extension: they are copied, and stay
_GLOBAL = 1 << 4
# Who asks for these may look for files beside its own, and a copy lies nowhere.
_ASKS_WHERE = frozenset((b"dladdr", b"dladdr1", b"dlinfo", b"dlopen", b"dl_iterate_phdr"))
_paths: dict[object, str] = {}  # file -> the path by which its copy was mapped in this process
_numbers = iter(range(1 << 30))


class RuntimeDetector:
    """Keeps such runtimes to those who brought them; tells of those where it cannot."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core

    def runtime_exported(
        self, extension: str, library: str, names: tuple[str, ...]
    ) -> tuple[str, Callable[[bool], None]] | None:
        """Return the file to be mapped instead of an extension that exports a C++ runtime, if any.

        And what to call when it was mapped, or could not be. `names` are the runtime's
        ``std::...::id``.

        Raises:
            ImportOrderError: in `strict`, where there is none.
        """
        from cudaguard.features.symbol_scope.findings import static_runtime

        frame, why = caller_frame(), ""
        if self._core.permit().acts:
            try:
                state = os.stat(library)
                key = library, state.st_ino, state.st_mtime_ns, state.st_size
                if key in _paths:
                    return _paths[key], lambda _: None
                why = _why_not(library, state.st_size)
                copy = -1 if why else _copied(library)
            except own_errors(OSError, AttributeError, ImportError) as error:
                why = str(error)
            if not why:
                # A path that nobody has used: the loader goes by what it has mapped by a path.
                path = f"/proc/self/{'./' * next(_numbers)}fd/{copy}"

                def ended(is_mapped: bool) -> None:
                    os.close(copy)
                    if is_mapped:
                        _paths[key] = path
                        done = (_ID, "own_runtime", extension, _PRIVATE)
                        self._core.reporter.repaired(*done, frame=frame)

                return path, ended
        finding = static_runtime(extension, library, names, describe(frame), why)
        stop = ImportOrderError(finding.as_error(), name=extension, path=library)
        self._core.reporter.found(finding, frame, stop=stop)
        return None


def _why_not(library: str, size: int) -> str:
    """Return why a copy would not do; empty if it does. An OSError: the file cannot be read."""
    from cudaguard.system.preload import is_mapped

    if not uses_glibc():
        return "this C library is not glibc"
    if is_mapped(library):
        return "it is mapped already"
    if size > _LARGEST:
        return f"it has more than {_LARGEST >> 20} MB"
    lines = read_start("/proc/self/limits", 1 << 12).splitlines()
    if not any(line.startswith(b"Max file size") and b"unlimited" in line for line in lines):
        return "the size of files is limited"
    with ElfFile(library) as file:
        wanted = SharedObject(file).wanted()
        asking = next((one.name.decode() for one in wanted if one.name in _ASKS_WHERE), "")
        search = SearchPath()
        alone = [name for name in file.needed if not is_mapped(name) and not search.find(name)]
    if alone:
        return f"{alone[0]}, which it needs, is found from its own folder only"
    return f"it calls {asking}(), and may look for files beside its own" if asking else ""


def _copied(library: str) -> int:
    """Return the descriptor of a copy; an OSError says that there is no room for it."""
    with ElfFile(library) as file:
        # With the variables that guard their initialization.
        unique = [(place, name.replace(b"_ZGVN", b"_ZN")) for place, name in file.unique()]
        places = [place for place, name in unique if is_runtime_id(name)]
        data = bytearray(file.whole())
    for place in places:
        data[place + SYMBOL_KIND] = _GLOBAL | (data[place + SYMBOL_KIND] & 0xF)
    copy = os.memfd_create(os.path.basename(library)[:200])
    try:
        if copy <= 2:  # whoever writes errors there would write into it
            raise OSError("no standard input, output or error is open")
        with memoryview(data) as rest:
            done = 0
            while done < len(rest):
                done += os.write(copy, rest[done:])
    except BaseException:
        os.close(copy)
        raise
    return copy
