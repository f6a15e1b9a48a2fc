"""Libraries that contain a C++ runtime of their own (``-static-libstdc++``) and export it.

The loader keeps one object per process of each ``STB_GNU_UNIQUE`` name, whatever its scope and
visibility. With local scope, or with its names hidden, such a library and a later libstdc++.so.6
share some of the ``std::...::id`` objects and have the others twice: streams write nothing, or
throw ``std::bad_cast``. As long as all of its names are global, libstdc++.so.6 uses them too.

Source: ``elf/dl-lookup.c`` of glibc (``do_lookup_unique``).
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from cudaguard.probe.elf import ElfFile, exported_runtime
from cudaguard.probe.loaded import serving_file
from cudaguard.rules.families import FAMILIES
from cudaguard.rules.patterns import matches


def runtime_in(library: str) -> str:
    """Return the file that a load of a library maps and that has such a runtime, or "".

    Args:
        library: Path or soname, as given to the loader.
    """
    path = os.path.abspath(library) if os.sep in library else serving_file(library)
    return next(filter(has_own_runtime, _mapped_by(path)), "")


def has_own_runtime(path: str) -> bool:
    """Return True if a file contains and exports a C++ runtime; False for libstdc++.so itself."""
    is_shared = matches(os.path.basename(path), FAMILIES["std"].owners)
    return not is_shared and bool(exported_runtime(path))


def _mapped_by(path: str) -> list[str]:
    """Return a library and what the loader would map with it now."""
    try:
        from cudaguard.probe.forecast import Load
        from cudaguard.probe.resident import Resident

        with ExitStack() as opened:
            file = opened.enter_context(ElfFile(path))
            load = Load(path, file, opened.enter_context(Resident()), opened, ())
            load.map_libraries()
            return [one.path for one in load.objects if one.is_new]
    except (OSError, OverflowError, ValueError, AttributeError, ImportError):  # no such file
        return []
