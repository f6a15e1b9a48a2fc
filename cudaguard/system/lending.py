"""Code that imports cudaguard, for an interpreter that need not have it installed.

Only cudaguard itself is lent, and what it requires where that interpreter lacks it: nothing else of
this environment can be imported there.
"""

from __future__ import annotations

import os

# What cudaguard requires. importlib_metadata is left out: Python has most of it.
REQUIRED = ("packaging", "pynvml", "tomli", "wrapt")
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# As -P does, which Python 3.9 and 3.10 do not know: what lies in the working directory is not what
# is installed.
WITHOUT_FOLDER = 'import sys\nif sys.path[:1] == [""]:\n    del sys.path[0]\n'

_LEND = """
def _lend(home, folders):
    import os, sys
    from importlib.machinery import PathFinder
    # Another release of it, which a start-up file has imported, and which is kept off.
    if os.environ.get("CUDAGUARD") == "off":
        for name in [name for name in sys.modules if name.partition(".")[0] == "cudaguard"]:
            del sys.modules[name]
    sys.path.insert(0, home)
    try:
        import cudaguard
    finally:
        sys.path.remove(home)
    class Lent:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if path is None and name in folders:
                return PathFinder.find_spec(name, [folders[name]])
    sys.meta_path.append(Lent)
_lend({home!r}, {folders!r})
del _lend
"""


def lend() -> str:
    """Return code after which `import cudaguard` works, and is this cudaguard."""
    return _LEND.format(home=HOME, folders=_folders())


def _folders() -> dict[str, str]:
    """Return required module -> the folder that it is in."""
    from cudaguard.system.torch_build import folder_of

    files = {name: folder_of(name) for name in REQUIRED}
    return {name: os.path.dirname(file) for name, file in files.items() if file}
