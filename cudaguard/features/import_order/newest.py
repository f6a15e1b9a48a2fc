"""The environment's copy of a library, opened before an older one of the system.

Called in every process with an extension in C++: where the environment has no such library, which
is everywhere but with conda, nothing is imported for it. Before a package that was built with
another compiler than the system's, as by Spack, it is the copy that the package's own libraries
lead to.
"""

from __future__ import annotations

import sys

from cudaguard.core.patterns import values_of
from cudaguard.core.request import Done
from cudaguard.files import os, own_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.request import Outcome, Request


def preload_newest(request: Request) -> Iterator[Outcome]:
    """Open the environment's copy of a library where the loader would take an older one."""
    if not request.permit.acts:  # nothing is known to fail yet
        return
    for soname in values_of(request.rule, "preload_newest"):
        files = [*_of_environment(soname), *_of_package(soname, request.path or "")]
        if files:
            from cudaguard.system.preload import newer_in_environment, open_all

            file = newer_in_environment(soname, files, request.path or "")
            if file and open_all((file,))[0]:
                yield Done(file, f"loaded before {request.name}, as the newest copy")


def _of_environment(soname: str) -> list[str]:
    """Return the files of a library, under that name or a longer one, in ``lib`` of Python's."""
    found = []
    for folder in dict.fromkeys((f"{sys.prefix}/lib", f"{sys.base_prefix}/lib")):
        try:
            found += [f"{folder}/{name}" for name in os.listdir(folder) if name.startswith(soname)]
        except own_errors(OSError):
            continue
    return found


def _of_package(soname: str, path: str) -> list[str]:
    """Return the files of a library that the libraries of a package lead to.

    Args:
        soname: The library.
        path: The ``__init__.py`` of the package; nothing is returned for others.
    """
    folder = f"{os.path.dirname(path)}/lib"
    if os.path.basename(path) != "__init__.py" or not os.path.isdir(folder):
        return []
    from cudaguard.system.preload import led_to

    return led_to(soname, [f"{folder}/{name}" for name in os.listdir(folder) if ".so" in name])
