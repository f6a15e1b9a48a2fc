"""Random healthy programs do exactly what they do without the guard.

Each is a few modules, some with names that the guard watches, which import each other in circles,
fail, load libraries, fork, start threads, raise groups of errors, set variables and replace
functions. What they print, how they end and their tracebacks are compared.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import textwrap

import pytest

NAMES = ("torch", "triton", "cupy", "decord", "first", "second", "third", "package.part")
FAILURES = (
    "raise ImportError('no driver', name='libcuda')",
    "import not_there",
    "raise ValueError(NAME)",
    "raise OSError('libcuda.so.1: cannot open shared object file: No such file or directory')",
    "from package import nothing_there",
    "ctypes.CDLL('libnot_there.so.1')",
)
STATEMENTS = """
    import {module}
    from {module} import NAME as other; print(other)
    importlib.import_module({module!r})
    importlib.reload(sys.modules[{module!r}]) if {module!r} in sys.modules else None
    sys.modules.pop({module!r}, None)
    print(importlib.util.find_spec({root!r}).name, {module!r} in sys.modules)
    sys.modules[{root!r}] = None
    ctypes.CDLL('libm.so.6').fabs; print(ctypes.CDLL('libm.so.6')._name)
    ctypes.CDLL(None, mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL()
    ctypes.CDLL('libm.so.6', 4, None, True).not_there
    sys.setdlopenflags(sys.getdlopenflags() | os.RTLD_GLOBAL)
    print(inspect.signature(ctypes.CDLL.__init__), ctypes.CDLL.__init__.__defaults__)
    import wrapt; print(wrapt.ObjectProxy([1]))
    lazy({module!r})
    in_child(lambda: __import__({module!r}))
    in_thread(lambda: __import__({module!r}))
    print(subprocess.run([sys.executable, '-c', 'import torch'], capture_output=True).returncode)
    os.environ['CUDA_VISIBLE_DEVICES'] = {number!r}; print(len(os.environ))
    os.environ.pop('CUDA_VISIBLE_DEVICES', None)
    warnings.warn({module!r}); warnings.simplefilter({filter!r}); print(len(warnings.filters))
    with warnings.catch_warnings(record=True) as seen: warnings.warn('w'); print(len(seen))
    print(json.dumps(sorted(name for name in sys.modules if name in NAMES)))
    sys.meta_path.insert(0, Counting()); import {module}; print(Counting.asked)
    sys.meta_path.pop(0) if type(sys.meta_path[0]) is Counting else None
    builtins.__import__ = functools.partial(builtins.__import__)
    print(sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__)
    raise_group()
    atexit.register(print, 'at exit', {number})
    logging.getLogger('program').warning({module!r})
    print([frame.name for frame in traceback.extract_stack() if "<" not in frame.filename])
    signal.signal(signal.SIGALRM, limit); signal.setitimer(signal.ITIMER_REAL, 0.02); time.sleep(5)
    print(pickle.loads(pickle.dumps(sys.modules.get({module!r}) and {number})))
    print(gc.collect() >= 0, sys.getrecursionlimit())
"""
WAYS = (
    "{}",
    "try:\n    {}\nexcept Exception as error:\n    show(error)",
    "try:\n    {}\nexcept (ImportError, OSError):\n    print('other')\nfinally:\n    print('done')",
    "with contextlib.suppress(Exception):\n    {}\n    print('passed')",
    "def function():\n    {}\ntry:\n    function()\nexcept Exception:\n    traceback.print_exc()",
    "if True:\n    {}",
)
HELP = """
import atexit, builtins, contextlib, ctypes, functools, gc, importlib.util, inspect, json, logging
import os, pickle, signal, subprocess, sys, threading, time, traceback, warnings
class Counting:
    asked = []
    def find_spec(self, name, path=None, target=None):
        if name in NAMES: self.asked.append(name)
def show(error):
    print(type(error).__name__, error, getattr(error, "name", None), error.__cause__)
    print(type(error.__context__).__name__, getattr(error, "__notes__", None))
def lazy(name):
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None: return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    print(module.NAME)
def in_child(work):
    sys.stdout.flush()
    process = os.fork()
    if not process:
        try:
            work()
        except Exception as error:
            show(error)
        print("child", flush=True)
        os._exit(7)
    print(os.waitpid(process, 0)[1])
def in_thread(work):
    if any(frame.name == "_find_and_load" for frame in traceback.extract_stack()):
        return  # it would wait for the import that waits for it
    thread = threading.Thread(target=work, name="work")
    thread.start()
    thread.join()
class Limit(Exception): pass
def limit(*_): raise Limit
def raise_group():
    try:
        raise ExceptionGroup("many", [ValueError(1), ImportError("two", name="torch")])
    except ExceptionGroup as group:
        group.add_note("a note")
        traceback.print_exc()
if sys.version_info < (3, 11): raise_group = int
"""


# Before 3.11 a traceback shows how importlib has called our loader, and our patches.
_FRAME = re.compile(
    r'  File "(?:<frozen importlib|[^"]*/cudaguard/).*\n(?:    .*\n)?'
    if sys.version_info < (3, 11)
    else r"(?!)"
)


def program(seed):
    """Return the files of one program."""
    choose = random.Random(seed)
    statements = [line.strip() for line in STATEMENTS.splitlines() if line.strip()]

    def body(most, *, may_fail):
        for _ in range(choose.randrange(1, most)):
            module = choose.choice(NAMES)
            words = {"module": module, "root": module.partition(".")[0]}
            words |= {
                "number": str(choose.randrange(3)),
                "filter": choose.choice(["once", "error"]),
            }
            wanted = choose.choice(statements[:3] if choose.random() < 0.4 else statements)
            way = choose.choice(WAYS[1:] if choose.random() < 0.9 else WAYS)
            yield way.format(wanted.format(**words))
        if may_fail and choose.random() < 0.2:
            yield choose.choice(FAILURES)

    start = f"from helpers import *\nNAMES = {NAMES}\n"
    files = {"package/__init__.py": "", "helpers.py": HELP + f"NAMES = {NAMES}\n"}
    for name in NAMES:
        path = name.replace(".", "/") + ".py"
        files[path] = "\n".join([start, f"NAME = {name!r}", *body(4, may_fail=True)])
    files["main.py"] = "\n".join([start, "NAME = 'main'", *body(12, may_fail=False)])
    return files


@pytest.mark.slow
@pytest.mark.parametrize("group", range(10))
def test_three_hundred_programs_run_as_without_the_guard(child, editable_python, group):
    different = []
    for seed in range(group * 30, group * 30 + 30):
        for path, text in program(seed).items():
            child.write(f"{seed}/{path}", textwrap.dedent(text))
        ends = []
        for mode in ("off", "fix"):
            command = (editable_python, "-B", f"{seed}/main.py")
            try:
                done = child.command(*command, env={"CUDAGUARD": mode}, check=False, timeout=20)
            except subprocess.TimeoutExpired:  # two threads that wait for each other's import
                ends.append((0, "", ""))
                break
            ends.append((done.returncode, done.stdout, _FRAME.sub("", done.stderr)))
        # One frame more shows where a recursion is cut off.
        is_endless = len(ends) == 1 or "RecursionError" in "".join(ends[0][1:])
        if ends[0] != ends[-1] and not is_endless:
            different.append((seed, ends))
    assert different == []
