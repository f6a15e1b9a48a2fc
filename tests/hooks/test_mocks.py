"""What a program puts into `os`, `builtins` and the like is called by the program only.

Each stand-in is tried in a process of its own, in which the guard has looked at nothing before.
"""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere less is looked at")
_NAMES = """
    os.open os.close os.read os.pread os.write os.dup os.pipe os.fdopen os.fstat os.stat
    os.lstat os.readlink os.listdir os.scandir os.getpid os.getppid os.getcwd os.access
    os.fspath os.fsdecode os.fsencode os.getenv os.sysconf os.confstr os.uname
    os.register_at_fork os.walk os.path.exists os.path.lexists os.path.isfile os.path.isdir
    os.path.islink os.path.isabs os.path.realpath os.path.abspath os.path.normpath
    os.path.basename os.path.dirname os.path.join os.path.split os.path.splitext
    os.path.samefile os.path.getsize os.path.expanduser builtins.open io.open builtins.print
    time.time time.monotonic time.perf_counter time.sleep threading.Lock threading.RLock
    sys.getdlopenflags glob.glob subprocess.Popen subprocess.run warnings.warn
    json.dumps signal.getsignal platform.machine shutil.which pathlib.Path.exists
    pathlib.Path.open pathlib.Path.read_text tempfile.mkdtemp ctypes.CDLL
    ctypes.util.find_library ctypes.cdll.LoadLibrary
"""
NAMES = _NAMES.split()
# Every way in which the guard sees a library, and a module, come or fail.
WORK = """
import ctypes, importlib.util, sys, os, io, time, threading, glob, subprocess, logging, warnings
import json, re, signal, platform, shutil, pathlib, tempfile, contextlib, ctypes.util, wave
from unittest import mock
HERE = os.getcwd()
def attempt(action, *arguments):
    try:
        action(*arguments)
    except BaseException as error:
        return type(error).__name__.replace("ExtensionError", "ImportError")
    return "done"
def from_file(name):
    spec = importlib.util.spec_from_file_location(name, f"{HERE}/{name}.so")
    importlib.util.module_from_spec(spec)
def work():
    cdll = ctypes.CDLL
    yield attempt(__import__, "target")
    yield attempt(__import__, "unwatched")
    yield attempt(from_file, "single")
    yield attempt(from_file, "lacking")
    yield attempt(__import__, "multi")
    yield attempt(cdll, "./libtiny.so", ctypes.RTLD_GLOBAL)
    yield attempt(cdll, f"{HERE}/libcudart.so.12")
    yield attempt(cdll, f"{HERE}/other/libcudart.so.12")
    yield attempt(cdll, "libm.so.6")
    yield attempt(cdll, f"{HERE}/libnone.so")
    yield attempt(cdll, "libnone.so")
    yield attempt(cdll, f"{HERE}/liblacking.so")
    yield attempt(sys.setdlopenflags, 2)
def look(name, how):
    with contextlib.ExitStack() as patched:
        names = NAMES if name == "all" else [name]
        its = [(n, patched.enter_context(mock.patch(n, **how(n)))) for n in names]
        done = list(work())
        counts = [(n, it.call_count) for n, it in its]
    print(name, *done, flush=True)
    print(name, *(pair for pair in counts if pair[1]), flush=True)
class Wrong(BaseException):
    pass
def find(name):
    owner, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(owner), attribute)
    except ImportError:
        return getattr(find(owner), attribute)
def each_counts(name):
    return {"wraps": REAL[name]}
def it_fails(name):
    return {"side_effect": Wrong}
def look_in_children(names, how):
    for name in names:
        child = os.fork()
        if child == 0:
            try:
                look(name, how)
            except BaseException as error:
                print(name, repr(error), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
REAL = {name: find(name) for name in NAMES}
look_in_children(["all"], each_counts)
look_in_children(NAMES, it_fails)
"""
LIBRARIES = {
    "libtiny.so": ("int tiny(void) { return 7; }", ()),
    "liblacking.so": ("int nobody_has_it(void); int use(void) { return nobody_has_it(); }", ()),
    "libcudart.so.12": ("int release(void) { return 1; }", ("-Wl,-soname,libcudart.so.12",)),
}


@pytest.fixture
def scene(native, compiler):
    """Modules, extensions and libraries, healthy ones and others."""
    for name, (source, flags) in LIBRARIES.items():
        compiler.put(native.child.folder / name, source + "\n", *flags)
    release = "int release(void) { return 2; }\n"
    compiler.put(native.child.folder / "other/libcudart.so.12", release, *flags)
    native.modules("target.py", "prereq.py", "unwatched.py")
    native.extension("single").rename(native.child.folder / "single.so")
    native.extension("lacking", "MISSING_SYMBOL").rename(native.child.folder / "lacking.so")
    native.extension("multi", "MULTI_PHASE")
    return native


def test_stand_ins_of_the_program_are_called_by_the_program_only(scene):
    names = f"NAMES = {NAMES!r}"
    plain = scene.bare(names, WORK)
    guarded = scene.guarded(names, WORK, proof="")
    assert guarded.lines == plain.lines
    assert sum(" done done done " in line for line in plain.lines) > len(NAMES) / 2
    assert "CG807" not in guarded.err


def test_class_that_stands_in_for_that_of_ctypes_is_left_alone(scene):
    code = """
        import ctypes
        from unittest import mock
        class Loader:
            def __init__(self, name, mode=0): self.name = name
        real = ctypes.CDLL.__init__
        for stand_in in (mock.MagicMock(), Loader, lambda name: name):
            with mock.patch("ctypes.CDLL", stand_in):
                sys.modules.pop("target", None)
                import target
                cudaguard.install()
                print(ctypes.CDLL("x") is not None, "cudaguard" in repr(stand_in.__init__))
            print(ctypes.CDLL.__init__ is real)
        cudaguard.uninstall()
        print(hasattr(ctypes.CDLL.__init__, "__wrapped__"))
        """
    ran = scene.guarded(code)
    assert (ran.lines, ran.err) == (["True False", "True"] * 3 + ["False"], "")
