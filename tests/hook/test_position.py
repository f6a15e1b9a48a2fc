"""Our place on ``sys.meta_path``: first, regained once, and never fought for."""

from __future__ import annotations

FIND = """
import importlib.machinery, importlib.util, sys
class Finder:
    def __init__(self, find): self.find_spec = find
def spec_of(name, loader=None):
    path = name.replace(".", "/") + ".py"
    return importlib.util.spec_from_file_location(name, path, loader=loader)
"""


PUSHING = """
class Pusher:
    def find_spec(self, name, path=None, target=None): return None
guard = sys.meta_path[0]
"""


def test_finder_put_before_ours_once_is_overtaken_once(pair):
    pair.modules("target.py", "prereq.py")
    ran = pair.guarded(
        PUSHING,
        """
        sys.meta_path.insert(0, Pusher())
        import target
        print(sys.meta_path[0] is guard, sum(f is guard for f in sys.meta_path))
        """,
        pair.FINDINGS,
    )
    assert (ran.lines, ran.err) == (["True 1"], "")


def test_finder_that_insists_on_the_first_place_gets_it(pair):
    """Two hooks that both insist would fight for ever; the second time it is only told."""
    pair.modules("target.py", "second.py", "third.py", "prereq.py")
    ran = pair.guarded(
        PUSHING,
        """
        pusher = Pusher()
        places = []
        for name in ("target", "second", "third"):
            if pusher in sys.meta_path: sys.meta_path.remove(pusher)
            sys.meta_path.insert(0, pusher)
            __import__(name)
            places.append(sys.meta_path.index(guard))
        print(places, sys.meta_path.count(guard))
        """,
        pair.FINDINGS,
        pair.NAMES,
        watch=("target", "second", "third"),
    )
    assert ran.lines == ["[0, 1, 1] 1", "CG803", "prereq target second third"]
    assert ran.err == "", "it harms nobody so far"


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


def test_guard_installed_twice_has_one_finder(pair):
    pair.modules("target.py", "prereq.py")
    lines = pair.guarded(
        """
        cudaguard.install()
        with cudaguard.guard():
            print([type(f).__name__ for f in sys.meta_path].count("GuardFinder"))
    """,
        proof="",
    ).lines
    assert lines == ["1"]


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
