"""Programs that forbid themselves this or that: nothing is wrong with them, and nothing is said.

Each is run without a guard and with it, and must print the same on both streams.
"""

from __future__ import annotations

import sys

import pytest

REFUSALS = {
    # What the guard reads of the process is refused to it. An audit hook may raise anything.
    "audit hook": """
        def refuse(event, arguments):
            if event == "open" and str(arguments[0]).startswith("/proc/self/mem"):
                raise RuntimeError(f"not allowed: {event} {arguments[0]}")
        sys.addaudithook(refuse)
    """,
    # What the guard imports when it needs it is refused to it.
    "builtins.__import__": """
        import builtins
        real = builtins.__import__
        def allowed(name, globals=None, locals=None, fromlist=(), level=0):
            if level == 0 and name.partition(".")[0] not in ALLOWED:
                raise RuntimeError(f"not allowed: import {name}")
            return real(name, globals, locals, fromlist, level)
        builtins.__import__ = allowed
    """,
    "sys.meta_path": """
        class Allowed:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] not in ALLOWED:
                    raise ImportError(f"not allowed: import {name}")
        sys.meta_path.insert(0, Allowed())
    """,
    "None in sys.modules": """
        if sys.version_info >= (3, 14):
            import ctypes  # which needs some of them
        for name in ("typing", "ast", "glob", "fnmatch", "re", "errno", "functools", "collections",
                     "contextlib", "__future__", "shlex", "itertools", "operator", "json"):
            sys.modules[name] = None
    """,
    # As tests do that are run within a test.
    "modules that are forgotten": """
        before = set(sys.modules)
        import ctypes.util, typing
        for name in set(sys.modules) - before:
            del sys.modules[name]
    """,
}
# Python 3.9 has no sys.stdlib_module_names; a name more does no harm.
ALLOWED = """
import sys
ALLOWED = {"ctypes", "struct", "_ctypes", "_struct", "ran", "one", "importlib", "os", "errno"}
ALLOWED |= set(sys.builtin_module_names)
ALLOWED |= {"types", "warnings", "_bisect", *getattr(sys, "stdlib_module_names", ())}
"""
WORK = """
    import ctypes
    ctypes.CDLL({library!r})
    import one
    for name in ("os", "cudaguard_is_not_here"):
        try:
            __import__(name)
        except (ImportError, RuntimeError) as error:
            print(type(error).__name__, error)
    print(one.answer())
"""


@pytest.mark.parametrize("mode", ["warn", "fix", "woken"])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_program_that_forbids_itself_things_hears_nothing(native, refusal, mode):
    library = native.extension("one")
    work = WORK.format(library=str(library))
    plain = native.bare(ALLOWED, REFUSALS[refusal], work)
    assert plain.lines[-1] == "42"
    start = f"import cudaguard; cudaguard.install({mode.replace('woken', 'fix')!r})"
    env = {"CUDAGUARD_WAKE": "1"} if mode == "woken" else {}
    assert native.bare(start, ALLOWED, REFUSALS[refusal], work, env=env) == plain


# What a program has or does while the guard wakes; `cupy` is watched, and looks for a library.
ODD = {
    "its own modules of those names": """
        import os
        os.makedirs("own", exist_ok=True)
        sys.path.insert(0, "own")
        for name in ("ast", "email", "glob", "heapq", "keyword", "random", "shlex", "token"):
            open(f"own/{name}.py", "w").write("print(__name__)")
    """,
    "a stand-in for the time": "mock.patch('time.time', side_effect=RuntimeError).start()",
    "a stand-in for a call": "mock.patch('os.close', side_effect=OSError(13, 'no')).start()",
    "no frames": """
        def refuse(event, arguments):
            if event == "sys._getframe":
                raise KeyboardInterrupt
        sys.addaudithook(refuse)
    """,
}
CUPY = """
import ctypes
try:
    ctypes.CDLL("libcudart.so.12")
except OSError:
    pass
class Odd(BaseException):
    def __getattribute__(self, name):
        raise ValueError(name)
    __str__ = None
raise Odd
"""


@pytest.mark.parametrize("odd", ODD)
def test_odd_program_is_let_be(native, odd):
    work = """
        try:
            import lacking
        except ImportError:
            pass
        try:
            import cupy
        except BaseException as error:
            print(type(error).__name__)
            raise
    """
    native.child.write("cupy.py", CUPY)
    native.extension("lacking", "MISSING_SYMBOL")
    start = "import sys; from unittest import mock; import ctypes"
    if sys.version_info < (3, 11):  # before that a traceback has frames of ours
        start += "; sys.excepthook = lambda *_: print('ends')"
    plain = native.bare(start, "pass", ODD[odd], work, check=False)
    assert "Odd" in plain.lines
    guard = "import cudaguard; cudaguard.install()"
    assert native.bare(start, guard, ODD[odd], work, check=False) == plain


# As PySide6's, which is in C: it looks into the builtins of its caller, and ends the process.
FEATURED = """
    import builtins, os, sys
    builtins.__orig_import__ = builtins.__import__
    def featured(*given):
        if "__orig_import__" not in sys._getframe(1).f_builtins:
            os._exit(70)
        return __orig_import__(*given)
    builtins.__import__ = featured
"""


def test_replaced_import_never_sees_builtins_of_ours(native):
    native.child.write("one.py", "print(1)")
    native.child.distribution("thing")
    rule = "cudaguard.Rule('X', ('one',), 'x', dist=('thing>=1',), needs=('json',))"
    start = "import os; os.environ['CUDAGUARD_WAKE'] = '1'\nimport cudaguard; cudaguard.install()"
    ran = native.bare(start, f"cudaguard.add_rule({rule})", FEATURED, "import one")
    assert ran.lines == ["1"]
