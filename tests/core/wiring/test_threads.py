"""Threads that switch, import and ask at once, with and without the GIL; and sub-interpreters."""

from __future__ import annotations

import pytest

THREADS, SECONDS = 16, 3
# Each module has a lock: that a module is taken out of sys.modules while another thread imports it
# is no matter of ours.
STRESS = f"""
import ctypes, importlib, random, sys, threading, time, warnings
import cudaguard
warnings.simplefilter("ignore")
RULES = [cudaguard.Rule(f"LOCAL{{i}}", (f"m{{i}}",), "x", needs=("prereq",)) for i in range(40)]
locks = {{f"m{{i}}": threading.Lock() for i in range(40)}}
start, end, failed = threading.Barrier({THREADS}), time.monotonic() + {SECONDS}, []
def import_again(chance):
    name = f"m{{chance.randrange(40)}}"
    with locks[name]:
        sys.modules.pop(name, None)
        importlib.import_module(name)
def block(chance):
    with cudaguard.guard(chance.choice(["fix", "observe"]), rules=RULES[:5]):
        import_again(chance)
def load(chance):
    try:
        ctypes.CDLL("libm.so.6"), ctypes.CDLL("libabsent.so")
    except OSError:
        pass
def install(chance): cudaguard.install(chance.choice(["fix", "warn"]), rules=[chance.choice(RULES)])
def uninstall(chance): chance.random() < 0.1 and cudaguard.uninstall()
def add(chance): cudaguard.add_rule(chance.choice(RULES))
def ask(chance): cudaguard.status(), cudaguard.active_rules(), cudaguard.explain("CG001")
def work(seed):
    chance = random.Random(seed)
    start.wait()
    while time.monotonic() < end and not failed:
        try:
            chance.choice([import_again, block, load, install, uninstall, add, ask])(chance)
        except BaseException as error:
            failed.append(repr(error))
threads = [threading.Thread(target=work, args=(seed,)) for seed in range({THREADS})]
for one in threads: one.start()
for one in threads: one.join()
cudaguard.uninstall()
broken = [found.evidence for found in cudaguard.status().findings if found.id == "CG807"]
ours = [one for one in sys.meta_path if type(one).__module__.startswith("cudaguard")]
print(failed, broken, ours, cudaguard.status().mode)
"""
GIL = "print(getattr(sys, '_is_gil_enabled', lambda: True)())"


@pytest.fixture
def modules(child):
    """Forty modules, and one that must come first."""
    for name in ("prereq", *(f"m{i}" for i in range(40))):
        child.write(f"{name}.py", "")
    return child


@pytest.mark.slow
def test_sixteen_threads_at_once(modules):
    done = modules.python(STRESS, timeout=120)
    assert (done.stdout, done.stderr) == ("[] [] [] off\n", "")


def test_import_leaves_the_gil_as_it_is(child):
    done = child.python(f"import sys\n{GIL}\nimport cudaguard; cudaguard.install()\n{GIL}\n")
    before, after = done.stdout.split()
    assert (before, done.stderr) == (after, "")


def test_what_another_thread_repairs_while_a_repair_is_looked_up():
    from cudaguard.core.dispatch import Dispatch

    class Subject(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            reporter.repaired("CG001", "preload", "another thread's")
            return str.__eq__(self, other)

    reporter = Dispatch().reporter
    for path in (Subject("/one.so"), "/x.so"):
        reporter.repaired("CG001", "preload", path, "loaded before torch")
    (done,) = (done for done in reporter.repairs if done.subject == "/x.so")
    assert done.how == "loaded before torch"
    assert any(done.subject == "another thread's" for done in reporter.repairs)
