"""Load one extension so that it finds its own names before the global ones (RTLD_DEEPBIND).

The last resort, for one named extension: where the library that took the names can be neither
kept local nor demoted. Source: ``dlopen(3)``.
"""

from __future__ import annotations

from cudaguard.elf.process import at_start
from cudaguard.files import os

RTLD_DEEPBIND: int = getattr(os, "RTLD_DEEPBIND", 0)  # 0: the platform has none


def shield(extension: str) -> str:
    """Map an extension with RTLD_DEEPBIND, so that importing it finds it mapped.

    Not by ``sys.setdlopenflags``, which every import of every thread would see.

    Args:
        extension: The file.

    Returns:
        Why it was not done, or an empty string.
    """
    reason = _excluded(extension)
    if reason:
        return reason
    import _ctypes

    try:
        # With a slash in it: the loader would look elsewhere for a bare name.
        _ctypes.dlopen(os.path.abspath(extension), os.RTLD_NOW | RTLD_DEEPBIND)
    except OSError as error:  # the import itself will say so as well
        return f"the loader refuses it: {error}"
    return ""


def _excluded(extension: str) -> str:
    if not RTLD_DEEPBIND:
        return "this platform has no RTLD_DEEPBIND"
    preloaded = os.environ.get("LD_PRELOAD") or at_start("LD_PRELOAD")
    if preloaded:
        return (
            f"LD_PRELOAD is set ({preloaded}), and RTLD_DEEPBIND would hide its functions from "
            "the extension"
        )
    from cudaguard.elf.loaded import first_entry, loaded_libraries
    from cudaguard.elf.memory import Memory
    from cudaguard.elf.reader import needed_libraries
    from cudaguard.elf.symbols import GlobalScope

    if GlobalScope().addresses([b"__asan_init"])[0]:
        return "AddressSanitizer is loaded, which does not allow RTLD_DEEPBIND"
    with Memory() as memory:
        paths = [library.path for library in loaded_libraries(memory, first_entry())]
    if os.path.realpath(extension) in paths:
        return "it is already loaded"
    names = {os.path.basename(path) for path in paths}
    for needed in needed_libraries(extension):
        if needed.startswith("libpython") and needed not in names:
            return f"it needs {needed}, and would load a second Python"
    return ""
