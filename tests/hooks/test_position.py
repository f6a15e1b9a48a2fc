"""Our place on ``sys.meta_path``: first when it comes, and never fought for."""

from __future__ import annotations

import pytest

from .conftest import FIND


def test_finder_of_the_program_keeps_the_first_place(pair):
    """Which is how it finds itself to leave the list; the guard acts behind it all the same."""
    pair.modules("target.py", "prereq.py")
    ran = pair.guarded(
        FIND,
        """
        sys.meta_path.insert(0, Finder(lambda *_: None))
        import target
        print(type(sys.meta_path.pop(0)).__name__, type(sys.meta_path[0]).__name__)
        """,
        pair.FINDINGS,
        pair.NAMES,
    )
    assert (ran.lines, ran.err) == (["Finder GuardFinder", "prereq target"], "")


def test_finder_in_front_that_claims_the_module_is_told(pair):
    pair.modules("target.py", "prereq.py")
    ran = pair.guarded(
        FIND,
        """
        def find(name, path=None, target=None):
            return spec_of(name) if name == "target" else None
        sys.meta_path.insert(0, Finder(find))
        import target
        """,
        pair.NAMES,
        pair.FINDINGS,
        proof="",
    )
    assert (ran.lines, ran.err) == (["target", "CG811"], "")


def test_installing_again_regains_the_place_as_the_finding_advises(pair):
    lines = pair.bare("""
        import sys, cudaguard

        class Front:
            @staticmethod
            def find_spec(name, path=None, target=None):
                return None

        cudaguard.install()
        sys.meta_path.insert(0, Front)
        cudaguard.install()
        print([type(f).__name__ for f in sys.meta_path].index("GuardFinder"))
        print(sum(type(f).__name__ == "GuardFinder" for f in sys.meta_path))
    """).lines
    assert lines == ["0", "1"]


# --- the list is the program's ------------------------------------------------------------------

PROGRAM = """
from sys import meta_path  # what many programs hold on to
import importlib.machinery, importlib.util, threading
class Finder:
    # Finds one module, and does something while it is asked for another.
    def __init__(self, finds, on="", do=None): self.finds, self.on, self.do = finds, on, do
    def find_spec(self, name, path=None, target=None):
        if name == self.on and self.do:  # once: a search may come by twice when the list grows
            do, self.do = self.do, None
            do()
        if name == self.finds:
            return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec): return None
    def exec_module(self, module): pass
def missing(name):
    try:
        __import__(name)
    except ImportError:
        return True
def ours():
    return [type(f).__name__ for f in sys.meta_path if type(f).__module__.startswith("cudaguard")]
"""


def test_list_stays_the_one_that_the_program_holds(pair):
    pair.modules("target.py", "prereq.py")
    lines = pair.guarded(
        PROGRAM,
        """
        before = [f for f in meta_path if "cudaguard" not in type(f).__module__]
        finder = Finder("virtual")
        meta_path.insert(0, finder)
        import target, virtual
        print(sys.meta_path is meta_path, ours())
        meta_path.remove(finder)
        del sys.modules["virtual"]
        print(missing("virtual"))
        cudaguard.uninstall()
        meta_path.insert(0, finder)
        import virtual
        cudaguard.install()
        cudaguard.uninstall()
        print(sys.meta_path is meta_path, meta_path == [finder, *before])
        """,
        proof="",
    ).lines
    assert lines == ["True ['GuardFinder']", "True", "True True"]


CHANGES = {
    "uninstall": "cudaguard.uninstall()",
    "move": "sys.meta_path.insert(0, Finder('')); cudaguard.install()",
    "block": "with cudaguard.guard(): pass",
}


@pytest.mark.parametrize("where", ["here", "thread"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", range(4))
def test_no_finder_is_passed_by_while_the_list_changes(pair, change, place, where):
    """`sought` is found behind whoever is being asked when the list changes."""
    change = CHANGES[change]
    pair.modules("target.py", "prereq.py")
    ran = pair.guarded(
        PROGRAM,
        f"""
        def change():
            {change.replace("; ", chr(10) + " " * 12)}
        def elsewhere():
            thread = threading.Thread(target=change)
            thread.start()
            thread.join()
        if {change!r}.startswith("with"):
            cudaguard.uninstall()
        here = {where == "here"}
        changing = Finder("", "sought", change if here else elsewhere)
        sys.meta_path.insert({place}, changing)
        sys.meta_path.insert({place} + 1, Finder("sought"))
        cudaguard.status()
        import sought
        print("found", sys.meta_path is meta_path)
        missing("nothing"), missing("nothing")
        print("RetiredFinder" in ours(), "one place" in str(cudaguard.status().changes))
        """,
        proof="",
    )
    assert (ran.lines, ran.err) == (["found True", "False False"], "")


def test_place_is_kept_and_said_to_be_while_a_search_is_under_way(pair):
    lines = pair.guarded(
        PROGRAM,
        """
        def change():
            cudaguard.uninstall()
            print(ours(), cudaguard.status().changes[0])
            missing("another")  # one search of this thread is under way still
            print(ours())
        sys.meta_path.append(Finder("sought", "sought", change))
        import sought
        print(ours())
        missing("another")
        print(ours())
        """,
        proof="",
    ).lines
    kept = "['RetiredFinder'] sys.meta_path: one place, until no import is under way"
    assert lines == [kept, "['RetiredFinder']", "['RetiredFinder']", "[]"]


def test_place_is_kept_while_another_thread_may_search(pair):
    lines = pair.guarded(
        PROGRAM,
        """
        import cudaguard.hooks.finder, time
        end = threading.Event()
        other = threading.Thread(target=end.wait)
        other.start()
        cudaguard.uninstall()
        missing("nothing")
        print(ours())
        cudaguard.hooks.finder.monotonic = lambda: time.monotonic() + 60
        missing("another")
        print(ours())
        end.set()
        other.join()
        """,
        proof="",
    ).lines
    assert lines == ["['RetiredFinder']", "[]"]


def test_many_threads_import_while_the_guard_comes_and_goes(pair):
    lines = pair.guarded(
        PROGRAM,
        """
        import time
        sys.setswitchinterval(1e-6)
        class Part(Finder):
            def find_spec(self, name, path=None, target=None):
                time.sleep(0)  # another thread's turn
                if name.endswith(self.finds):
                    return importlib.machinery.ModuleSpec(name, self)
        sys.meta_path[1:1] = [Part(f"_{i}") for i in range(5)]
        length = len(sys.meta_path)
        lost = []
        def work(part):
            for i in range(part, 600, 3):
                if missing(f"module{i}_{i % 5}"):
                    lost.append(i)
        def change():
            for _ in range(100):
                cudaguard.uninstall()
                cudaguard.install()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        changing = threading.Thread(target=change)
        for thread in (changing, *threads): thread.start()
        for thread in threads: thread.join()
        changing.join()
        for i in range(len(sys.meta_path)):
            missing("nothing")
        print(lost, len(sys.meta_path) - length, ours(), sys.meta_path is meta_path)
        """,
        proof="",
    ).lines
    assert lines == ["[] 0 ['GuardFinder'] True"]
