"""Errors that nobody can write to pass through the guard as they are."""

from __future__ import annotations

import pytest

ERRORS = {
    "frozen": """
        from dataclasses import dataclass
        @dataclass(frozen=True)
        class Missing(Exception):
            key: str
        """,
    "refusing": """
        class Missing(Exception):
            def __setattr__(self, name, value):
                raise SystemError(f"nobody sets {name}")
        """,
    "of-its-own": """
        class Missing(ImportError):
            __traceback__ = property(lambda self: None)
        """,
}
CATCH = """
import sys, traceback
def caught(action, *arguments):
    try:
        action(*arguments)
    except BaseException as error:
        print(type(error).__name__, error.args, [f.name for f in traceback.extract_tb(
            BaseException.__traceback__.__get__(error))][-1])
    else:
        print("nothing was raised")
"""


@pytest.fixture(params=ERRORS)
def scene(native, request):
    """`wrong` has the error, and `raising.fail` raises it."""
    native.child.write("wrong.py", ERRORS[request.param])
    native.child.write("raising.py", "from wrong import Missing\ndef fail(*_): raise Missing('it')")
    native.child.write("prereq.py", "")
    return native


def test_of_the_module_itself(scene):
    scene.child.write("target.py", "import raising; raising.fail()")
    assert scene.same(CATCH, "caught(__import__, 'target')")[0].startswith("Missing ('it',)")


@pytest.mark.parametrize("watch", ["target", "elsewhere"])
def test_of_what_an_extension_imports(scene, phase, watch):
    scene.child.write("ran.py", "import raising; raising.fail()")
    scene.extension("target", *phase)
    lines = scene.same(CATCH, "caught(__import__, 'target')", watch=(watch,), proof="")
    assert lines == ["Missing ('it',) fail"]


def test_of_a_finder(scene):
    code = """
        import raising
        class Finder:
            find_spec = raising.fail
        sys.meta_path.append(Finder())
        caught(__import__, "target")
        """
    assert scene.same(CATCH, code, proof="") == ["Missing ('it',) fail"]


@pytest.mark.parametrize("method", ["create_module", "exec_module"])
def test_of_a_loader(scene, method):
    code = f"""
        import importlib.util, raising
        class Loader:
            def create_module(self, spec): pass
            def exec_module(self, module): pass
            {method} = raising.fail
        class Finder:
            def find_spec(self, name, path=None, target=None):
                return importlib.util.spec_from_loader(name, Loader()) if name == "target" else None
        sys.meta_path.append(Finder())
        caught(__import__, "target")
        """
    assert scene.same(CATCH, code) == ["Missing ('it',) fail"]


@pytest.mark.parametrize(
    "call",
    [
        "ctypes.CDLL, type('Path', (), {'__fspath__': raising.fail})()",
        "ctypes.CDLL, 'libm.so.6', type('Mode', (), {'__index__': raising.fail})()",
        "sys.setdlopenflags, type('Flags', (), {'__index__': raising.fail})()",
        "Loud, 'libm.so.6'",
    ],
)
def test_of_an_argument(scene, call):
    code = f"""
        import ctypes, raising
        class Loud(ctypes.CDLL):
            _handle = property(None, raising.fail)
        caught({call})
        """
    assert scene.same(CATCH, code, proof="") == ["Missing ('it',) fail"]


def test_of_a_guarded_block(scene):
    code = """
        import raising
        def block():
            with cudaguard.guard():
                raising.fail()
        caught(block)
        """
    ran = scene.guarded(CATCH, code, proof="")
    assert (ran.lines, ran.err) == (["Missing ('it',) fail"], "")
