"""A library that is opened before another one takes its place, or its room.

The newest copy, the environment's or the system's: where an extension in C++ comes and the
environment has a copy, as conda's do, or a folder of its own has one, or a package that the program
imports next. Before a package that was built with another compiler than the system's, as by Spack,
it is the copy that its own libraries lead to.
"""

from __future__ import annotations

import sys

from cudaguard.core.repairs import Done
from cudaguard.files import bytes_in, names_in, os
from cudaguard.hooks.caller import caller_frame, describe
from cudaguard.kernel.loads import copies_in_packages, loader, run_path
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.repairs import Outcome, Request

_BUNDLED = ".libs"  # where auditwheel puts what a wheel brings along


def preload_newest(request: Request, soname: str = "") -> Iterator[Outcome]:
    """Open the newest copy of a library where the loader would take an older one.

    An extension needs it, or a package comes: what the rule names first these need as well.
    """
    if not request.permit.acts:  # nothing is known to fail yet
        return
    soname = soname or request.values[0]
    path = request.path or ""
    folder = os.path.dirname(path)
    files = [*_below(f"{sys.prefix}/lib", soname), *_below(f"{sys.base_prefix}/lib", soname)]
    files += _in_next_packages(soname, request.name)
    if os.path.basename(path) == "__init__.py":  # what a package's own libraries lead to
        own = [file for file in _below(f"{folder}/lib", "") if ".so" in file[len(folder) :]]
        own = [file for file in own if _may_lead_to(soname, file)]
        if own:
            from cudaguard.system.newer_copies import led_to

            files += led_to(soname, own)
    if files or _may_lead_to(soname, path):
        from cudaguard.system.newer_copies import newer_in_environment
        from cudaguard.system.preload import open_all

        file = newer_in_environment(soname, [*dict.fromkeys(files)], path)
        if file and open_all((file,))[0]:
            yield Done(file, f"loaded before {request.name}, as the newest copy")


def preload_hidden(request: Request) -> Iterator[Outcome]:
    """Open libraries of packages of which a folder of ``LD_LIBRARY_PATH`` has an older file."""
    from cudaguard.system.newer_copies import hidden_by_older

    if hidden := [file for pattern in request.values for file in hidden_by_older(pattern)]:
        from cudaguard.features.import_order.repair import opened_first
        from cudaguard.system.preload import not_mapped

        yield from opened_first(request, not_mapped(hidden))


def preload_needed(request: Request, soname: str) -> Iterator[Outcome]:
    """Open the copy that another package needs before an older one is mapped that lacks something.

    Only where the program imports that package next, or would now be refused. `soname` is what is
    about to be loaded, or something that it needs.
    """
    if request.permit.acts:
        from cudaguard.system.newer_copies import needed_by_others
        from cudaguard.system.preload import open_all

        need = needed_by_others(soname, request.path or "")
        if need is not None:
            from cudaguard.core.import_plan import upcoming

            files, client, modules = need
            is_certain = not modules or upcoming(modules, request.name).certain
            for file in open_all(files)[0] if is_certain else ():
                yield Done(file, f"loaded before {request.name}, as {client} needs this copy")


def preload_static_tls(request: Request) -> Iterator[Outcome]:
    """Open bundled libraries that want static TLS before a file that takes of it.

    Only those of packages that the sources say the program imports later, or may import: in a
    function, or under a condition. One that it does not import takes room for nothing.
    """
    if not request.permit.acts:  # nothing is known to fail yet
        return
    from cudaguard.elf.library_facts import static_tls_of
    from cudaguard.system.preload import all_installed, not_mapped, open_all

    new = _with_new_needs(request.path or "")
    taking = [file for file in new if static_tls_of(file, or_takes=True)]
    if all(os.path.dirname(file).endswith(_BUNDLED) and static_tls_of(file) for file in taking):
        return  # libraries of the same kind may come in any order
    from cudaguard.core.import_plan import upcoming

    for pattern in request.values:
        files = not_mapped(all_installed(f"*{_BUNDLED}/{pattern}"))
        found = {file: _modules_of(file) for file in files if static_tls_of(file)}
        plan = upcoming(frozenset().union(*found.values()), request.name)
        later = plan.certain.union(plan.likely)
        for file in open_all(file for file, modules in found.items() if later & modules)[0]:
            yield Done(file, f"loaded before {request.name}")


def _modules_of(file: str) -> frozenset[str]:
    """Return the packages of the distribution that a library was bundled with."""
    place, name = os.path.split(os.path.dirname(file)[: -len(_BUNDLED)])
    infos = [entry for entry in names_in(place) if entry.endswith(".dist-info")]
    own = [entry for entry in infos if entry.partition("-")[0].lower() == name.lower()]
    record = bytes_in(f"{place}/{own[0]}/RECORD") if len(own) == 1 else b""
    lines = record.decode("utf-8", "replace").splitlines() or [name]
    first = (line.partition("/__init__.py,")[0] for line in lines)
    return frozenset(module for module in first if module.isidentifier())


def _with_new_needs(file: str) -> list[str]:
    """Return a file that is about to be mapped, and what it needs that is not there yet."""
    from cudaguard.elf.reader import read_elf
    from cudaguard.elf.search_path import SearchPath, read_place

    search, files = SearchPath(), [file]
    for one in files:  # which grows; the kernel is asked, as it does without ctypes
        new = [name for name in read_elf(one).needed if name not in loader.names]
        place = read_place(one) if new else None
        files += {search.find(name, place) for name in new} - {"", *files}
    return files


def _in_next_packages(soname: str, watched: str) -> list[str]:
    """Return the copies in the folders of packages that the program imports later."""
    found = copies_in_packages(soname)
    of = {file: file.rpartition("-packages/")[2].partition("/")[0] for file in found}
    if not of:
        return []
    from cudaguard.core.import_plan import upcoming

    plan = upcoming(frozenset(of.values()), watched)
    return [file for file, module in of.items() if module in plan.certain or module in plan.likely]


def _may_lead_to(soname: str, library: str) -> bool:
    """Return True if a folder that a library names may have another one that it needs."""
    if not any("$" in place or os.path.exists(f"{place}/{soname}") for place in run_path(library)):
        return False
    from cudaguard.elf.reader import read_elf

    return soname in read_elf(library).needed


def _below(folder: str, start: str) -> list[str]:
    """Return the files in a folder whose names begin so."""
    return [f"{folder}/{name}" for name in names_in(folder) if name.startswith(start)]


# --- LD_LIBRARY_PATH that was set in the running process, where it has no effect ------------------

_SEARCH_PATH = "LD_LIBRARY_PATH"


class SearchPathDetector:
    """Tells of libraries that lie in a folder which was added too late."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core

    def not_found(self, missing: str) -> None:
        """Look why a library was not found, as the loader names it."""
        if os.sep in missing:  # a path: the variable has no part in that
            return
        from cudaguard.elf.process import at_start

        said = os.environ.get(_SEARCH_PATH, "")
        read = at_start(_SEARCH_PATH).split(":") if said else []
        late = [folder for folder in said.split(":") if folder and folder not in read]
        name = os.path.basename(missing)
        found = next((f for f in late if os.path.exists(os.path.join(f, name))), None)
        if found is not None:
            from cudaguard.features.import_order.findings import search_path_too_late

            frame = caller_frame()
            self._core.reporter.found(search_path_too_late(name, found, describe(frame)), frame)
