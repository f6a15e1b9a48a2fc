"""Random healthy programs do exactly what they do without the guard, in whatever way they get it.

Each is a few modules, some with names that the guard watches, which import each other in circles,
fail, load libraries, fork, start threads and processes, raise errors of odd classes, set variables
and limits and replace functions. What they print, how they end and their tracebacks are compared.
``CUDAGUARD_TEST_PROGRAMS`` is how many there are.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest

WATCHED = ("torch", "triton", "cupy", "decord", "cv2", "jax", "peft", "numba.cuda")
NAMES = (*WATCHED, "first", "second", "third", "package.part")
ABSENT = ("paddle", "not_there", "torch.nothing", "package.nothing")
EXTENSIONS = {"one": "", "two": "MULTI_PHASE", "failing": "FAILING", "lacking": "MISSING_SYMBOL"}
_TEXT = (Path(__file__).parent / "programs.txt").read_text(encoding="utf-8")
_PARTS = (part.splitlines() for part in re.split(r"(?m)^\[.*\]\n", _TEXT)[1:])
STATEMENTS, FAILURES, _CHOICES = _PARTS
CHOICES = {name: values for name, *values in map(str.split, _CHOICES)}
WAYS = (
    "{}",
    "try:\n    {}\nexcept Exception as error:\n    show(error)",
    "try:\n    {}\nexcept (ImportError, OSError):\n    print('other')\nfinally:\n    print('done')",
    "with contextlib.suppress(Exception):\n    {}\n    print('passed')",
    "def function():\n    {}\ntry:\n    function()\nexcept Exception:\n    traceback.print_exc()",
)
HELP = (
    f"NAMES = {NAMES}"
    r"""
import asyncio, atexit, builtins, contextlib, copy, ctypes, functools, gc, importlib.abc, inspect
import importlib.metadata, importlib.util, io, json, linecache, logging, multiprocessing, os
import pathlib, pickle, pkgutil, runpy, signal, subprocess, sys, threading, time, traceback, types
import warnings, weakref, helpers as work
from importlib import machinery, util
from unittest import mock
FILE, SUFFIX, IS_MAIN = os.path.dirname(__file__), machinery.EXTENSION_SUFFIXES[0], False
class Odd(ImportError):
    def __str__(self): raise ValueError("in str")
    def __getattribute__(self, name): raise ValueError(name)
class Index:
    def __index__(self): return print("asked") or 2
class Odd_int(int):
    def __and__(self, other): raise ZeroDivisionError
class Name(str):
    def __contains__(self, other): raise ZeroDivisionError
    __hash__ = str.__hash__
class Limit(Exception): pass
def limit(*_): raise Limit
def get(one, name): return BaseException.__dict__[name].__get__(one)
def show(error):
    print(type(error).__name__, get(error, "args"), repr(get(error, "__cause__")))
    print(type(get(error, "__context__")).__name__, get(error, "__dict__").get("__notes__"))
    frames = traceback.extract_tb(get(error, "__traceback__"))  # before 3.11 with some of ours
    print([one.name for one in frames] if sys.version_info >= (3, 11) else "")
def attempt(name):
    try:
        __import__(name)
    except BaseException as error:
        show(error)
async def waited(name):
    attempt(name)
    return await asyncio.sleep(0, name)
def module(one):
    there = vars(one)
    return there["__name__"], there["__spec__"].name, there["__loader__"].__class__.__name__
def environ():
    return [name for name in sorted(os.environ) if "CUDAGUARD" not in name and name != "PYTHONPATH"]
def lazy(name):
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None: return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    print(made.NAME)
class Finder:
    def __init__(self, name="", error=None): self.names, self.name, self.error = set(), name, error
    def find_spec(self, name, path=None, target=None):
        if name in NAMES: self.names.add((name, path is None, target is None))
        if name == self.name: raise self.error
def asked(name, place, finder=None):
    finder = finder or Finder()
    sys.meta_path.insert(place, finder)
    sys.modules.pop(name, None)
    attempt(name)
    sys.meta_path.remove(finder)
    print(sorted(finder.names))
def found(name, place, error): asked(name, place, Finder(name, error))
def stated(name):
    names, real = [], builtins.__import__
    def statement(name, *rest, **more):
        names.append(name)
        return real(name, *rest, **more)
    with mock.patch("builtins.__import__", statement): attempt(name)
    print([name for name in names if name.startswith((*NAMES, "cudaguard"))])
REFUSED = {}
def hook(event, arguments):
    if event in REFUSED: raise copy.copy(REFUSED[event])
sys.addaudithook(hook)
def refused(event, error, name):
    REFUSED[event] = error
    try:
        attempt(name), attempt("one"), ctypes.CDLL("libm.so.6")
    finally:
        REFUSED.clear()
def traced(put, name):
    seen = []
    def trace(frame, event, argument):
        code = frame.f_code
        if code.co_filename.startswith(FILE) and code.co_filename != __file__:
            seen.append((event, code.co_name, frame.f_lineno))
        return trace
    put(trace), attempt(name), put(None)
    print(len(seen), seen[:50])
def limited(files, name):
    import resource
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files + 2, most[1]))
    attempt(name), attempt("one"), resource.setrlimit(resource.RLIMIT_NOFILE, most)
def collected(name):
    attempt(name)
    there = sys.modules.pop(name, None)
    if type(there) is types.ModuleType and "." not in name:
        held = [weakref.ref(there), weakref.ref(there.__spec__)]
        globals().pop(name, None)
        del there
        gc.collect()
        print([one() is None for one in held])
def interpreted(name):
    if not util.find_spec("_xxsubinterpreters"): return
    import _xxsubinterpreters as interpreters
    made = interpreters.create()
    interpreters.run_string(made, f"try: import {name}\nexcept ImportError as e: print(e)")
    interpreters.destroy(made)
def in_child(work):
    sys.stdout.flush()
    if not (process := os.fork()):
        try:
            work()
        except Exception as error:
            show(error)
        print("child", flush=True), os._exit(7)
    print(os.waitpid(process, 0)[1])
def in_thread(work):
    if any(frame.name == "_find_and_load" for frame in traceback.extract_stack()):
        return  # it would wait for the import that waits for it
    thread = threading.Thread(target=work, name="work")
    thread.start(), thread.join()
def raise_group():
    try:
        raise ExceptionGroup("many", [ValueError(1), ImportError("two", name="torch")])
    except ExceptionGroup as group:
        group.add_note("a note"), traceback.print_exc()
if sys.version_info < (3, 11): raise_group = int
"""
)
GUARDED = {
    "fix": {"CUDAGUARD": "fix"},
    "warn": {"CUDAGUARD": "warn"},
    "woken": {"CUDAGUARD": "fix", "CUDAGUARD_WAKE": "1"},
    "asleep": {"pass": "import cudaguard; cudaguard.install()"},
    "block": {"if True:": "with __import__('cudaguard').guard():"},
    "run": {"with": "-m cudaguard run -q"},
}
COUNT = int(os.environ.get("CUDAGUARD_TEST_PROGRAMS", "40"))
# Before 3.11 a traceback shows how importlib has called our loader, and our patches.
_FRAME = r'  File "(?:<frozen importlib|[^"]*/cudaguard/).*\n(?:    .*\n)?'
# What is not a program's: where things lie, and what is said of a fault that is one.
_UNLIKE = re.compile(
    r"0x[0-9a-f]+|(?m:^\S.*Warning: \[CG(?!807).*\n(?:  (?![+|]|File ).*\n)*)"
    r"|(?m:^cudaguard (?:run: |\[CG).*\n(?:  (?![+|]|File ).*\n)*)"
    + ("|" + _FRAME if sys.version_info < (3, 11) else "")
)


def program(seed):
    """Return the files of one program."""
    choose = random.Random(seed)

    def body(most, due=()):
        usual = STATEMENTS + 8 * STATEMENTS[:3]
        for wanted in (*due, *choose.choices(usual, k=choose.randrange(most))):
            name = choose.choice(NAMES)
            words = {key: choose.choice(values) for key, values in CHOICES.items()}
            words |= {"module": name, "root": name.partition(".")[0]}
            words["any"] = name if choose.random() < 0.8 else choose.choice(ABSENT)
            way = choose.choice(WAYS[1:] if choose.random() < 0.97 else WAYS)
            yield way.replace("{}", Template(wanted).substitute(words))
        if choose.random() < 0.2:
            yield choose.choice(FAILURES)

    start = "from helpers import *\nimport helpers\n"
    files = {"ran.py": "names = []", "helpers.py": HELP, "data.txt": "some data"}
    files |= dict.fromkeys(["package/__init__.py", "numba/__init__.py"], "")
    files["sklearn.py"] = "VALUE = 42\ndef function():\n    return 'text of the function'\n"
    for name in NAMES:
        files[name.replace(".", "/") + ".py"] = "\n".join([f"{start}NAME = {name!r}", *body(4)])
    files["again.py"] = "NAME = 1 / ('NAME' not in globals())\n"
    files["peft.py"] = "import warnings; NAME = warnings.warn('of the importer', stacklevel=2)\n"
    due = STATEMENTS[seed % 20 :: 20]  # each in some program
    main = "\n".join([f"{start}NAME, IS_MAIN = 'main', True", *body(15, due)]).replace("\n", "\n  ")
    files["main.py"] = f"pass\nif __name__ == '__main__':\n if True:\n  {main}\n"
    files |= {f"own/{name}.py": f"print('runs {name}')" for name in CHOICES["shadow"]}
    return files


@pytest.fixture
def ended(native, editable_python):
    """Returns how a program ends that is run in some way: status, and what it prints."""

    def run(seed, way=""):
        child, told = native.child, GUARDED.get(way, {})
        files = program(seed)
        for old in ("pass", "if True:"):
            files["main.py"] = files["main.py"].replace(old, told.get(old, old), 1)
        for path, text in files.items():
            child.write(f"{seed}/{path}", text)
        for name, define in EXTENSIONS.items():
            native.extension(name, *define.split(), at=str(seed))
        command = (editable_python, "-B", *told.get("with", "").split(), f"{seed}/main.py")
        variables = {name: value for name, value in told.items() if name.startswith("CUDAGUARD")}
        variables |= {
            "LANG": "",
            "LC_ALL": "",
            "LC_CTYPE": "",
        }  # which Python sets itself (PEP 538)
        try:
            done = child.command(*command, env=variables, check=False, timeout=20)
        except subprocess.TimeoutExpired:  # two threads that wait for each other's import
            return None
        return done.returncode, *(_UNLIKE.sub("", o).rstrip() for o in (done.stdout, done.stderr))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("group", range(4))
def test_programs_run_as_without_the_guard(ended, group):
    different = []
    for seed in range(group, COUNT, 4):
        plain = ended(seed)
        # One frame more shows where a recursion is cut off.
        if plain is None or "RecursionError" in "".join(plain[1:]):
            continue
        for way in list(GUARDED)[seed // 20 % 2 :: 2]:
            guarded = ended(seed, way)
            if guarded not in (plain, ended(seed)) and ended(seed, way) not in (plain, ended(seed)):
                different.append((seed, way, plain, guarded))
    assert different == []
