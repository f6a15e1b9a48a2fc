"""Other people's finders, before and behind ours: odd, old, broken, delegating, pushing."""

from __future__ import annotations

import sys

import pytest

FIND = """
import importlib.machinery, importlib.util, sys
class Finder:
    def __init__(self, find): self.find_spec = find
def spec_of(name, loader=None):
    path = name.replace(".", "/") + ".py"
    return importlib.util.spec_from_file_location(name, path, loader=loader)
"""


def test_same_spec_handed_out_twice(pair):
    """Neither stacked nor lost: each import of it is prepared, once."""
    pair.modules("target.py", "prereq.py")
    lines = pair.guarded(
        FIND,
        """
        spec = spec_of("target")
        real = spec.loader
        def find(name, path=None, target=None):
            return spec if name == "target" else None
        sys.meta_path.insert(1, Finder(find))
        print([importlib.util.find_spec("target") is spec for _ in range(2)])
        import target
        print(target.__loader__ is real, spec.loader is real)
        del sys.modules["target"], sys.modules["prereq"]
        import target
        print(target.__loader__ is real, spec.loader is real)
        """,
        pair.NAMES,
    ).lines
    assert lines == ["[True, True]", "True True", "True True", "prereq target prereq target"]


def test_loader_without_create_module_fails_as_ever(pair):
    pair.same(
        FIND,
        """
        class Loader:
            def exec_module(self, module): raise AssertionError("never")
        def find(name, path=None, target=None):
            return importlib.machinery.ModuleSpec(name, Loader()) if name == "target" else None
        sys.meta_path.insert(0, Finder(find))
        """
        "sys.meta_path.sort(key=lambda finder: type(finder).__name__ != 'GuardFinder')",
        """
        try:
            import target
        except ImportError as error:
            print(error)
        """,
        proof="",
    )


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="load_module is not supported any more")
def test_loader_that_knows_only_load_module(pair):
    lines = pair.same(
        FIND,
        """
        import types, warnings
        warnings.simplefilter("ignore")
        class Loader:
            def load_module(self, name):
                module = sys.modules[name] = types.ModuleType(name)
                module.value = 42
                return module
        def find(name, path=None, target=None):
            return importlib.machinery.ModuleSpec(name, Loader()) if name == "target" else None
        sys.meta_path.insert(1, Finder(find))
        import target
        print(target.value, type(target.__loader__).__name__, type(target.__spec__.loader).__name__)
        """,
        proof="assert [f.id for f in cudaguard.status().findings] == ['CG811']",
    )
    assert lines == ["42 Loader Loader"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="find_module is not called any more")
@pytest.mark.parametrize("claims", [True, False])
def test_finder_that_knows_only_find_module(pair, claims):
    """It stands before the finder of files, so its module wins, as without the guard."""
    pair.module("target.py", "", "value = 'from the file'\n")
    lines = pair.same(
        f"claims = {claims}",
        """
        import sys, types, warnings
        warnings.simplefilter("ignore")
        class Loader:
            def load_module(self, name):
                module = sys.modules[name] = types.ModuleType(name)
                module.value = "from the old finder"
                return module
        class Finder:
            def find_module(self, name, path=None):
                return Loader() if claims and name == "target" else None
        sys.meta_path.insert(1, Finder())
        import target
        print(target.value)
        """,
        proof="" if claims else None,
    )
    assert lines == ["from the old finder" if claims else "from the file"]


def test_namespace_package(pair):
    """It has no loader to stand in for; its parts are guarded as others are."""
    pair.modules("one/target/a.py", "two/target/b.py", "prereq.py")
    pair.same(
        """
        import sys
        sys.path[:0] = ["one", "two"]
        import target
        print(list(target.__path__), target.__spec__.loader, type(target.__loader__).__name__)
        import target.a, target.b
        print(target.a, target.b.__loader__)
        """,
        watch=("target", "target.a"),
        proof="assert 'prereq' in sys.modules",
    )


def test_path_hooks_and_zip_and_editable_finders_are_asked(pair):
    """A guard that asks the finder of files only would miss these."""
    pair.modules("elsewhere/target.py", "prereq.py")
    lines = pair.guarded(
        FIND,
        """
        class Editable:
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                if name == "target":
                    return importlib.util.spec_from_file_location(name, "elsewhere/target.py")
        sys.meta_path.append(Editable)
        import target
        """,
        pair.NAMES,
    ).lines
    assert lines == ["prereq target"]


def test_path_and_target_are_passed_on(pair):
    pair.modules("prereq.py", "target/__init__.py", "target/part.py")
    pair.same(
        FIND,
        """
        import importlib
        def find(name, path=None, target=None):
            if name.startswith("target"):
                print(name, path, target and target.__name__)
        sys.meta_path.insert(1 if "cudaguard" in sys.modules else 0, Finder(find))
        import target.part
        importlib.reload(target.part)
        importlib.reload(target)
        """,
        watch=("target", "target.part"),
    )


def test_finder_that_raises_is_not_hidden_and_does_no_lasting_harm(pair):
    pair.modules("target.py", "prereq.py")
    lines = pair.guarded(
        FIND,
        """
        def find(name, path=None, target=None):
            if name == "target":
                raise OSError("a finder on a broken network drive")
        broken = Finder(find)
        sys.meta_path.insert(1, broken)
        try:
            import target
        except OSError as error:
            print(error)
        sys.meta_path.remove(broken)
        import target
        """,
        pair.NAMES,
    ).lines
    assert lines == ["a finder on a broken network drive", "prereq target"]


def test_finder_that_imports_the_watched_module_itself(pair):
    """It comes back to our finder for the same name in the same thread."""
    pair.modules("target.py", "prereq.py")
    lines = pair.guarded(
        FIND,
        """
        def find(name, path=None, target=None):
            if name == "target":
                return importlib.util.find_spec("target")  # as old import hooks did
        asking = []
        def once(name, path=None, target=None):
            if name == "target" and not asking:
                asking.append(name)
                try:
                    return find(name)
                finally:
                    asking.clear()
        for position in (0, 1):
            sys.meta_path.insert(position, Finder(once))
            import target
            print(type(target.__loader__).__name__)
            del sys.modules["target"], sys.modules["prereq"]
            sys.meta_path[:] = [f for f in sys.meta_path if type(f) is not Finder]
        """,
        pair.NAMES,
    ).lines
    assert lines == ["SourceFileLoader"] * 2 + ["prereq target prereq target"]


def test_thread_in_a_package_that_imports_a_watched_part_and_is_joined(pair):
    """`importlib.util.find_spec` in a finder takes the parent's lock: two peers hang here."""
    pair.modules("prereq.py", "package/part.py")
    pair.module(
        "package/__init__.py",
        """
        import importlib, threading
        done = []
        def work(): done.append(importlib.import_module("package.part"))
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(20)
        assert done, "the thread hangs"
        """,
    )
    lines = pair.guarded("import package", pair.NAMES, watch=("package.part",)).lines
    assert lines == ["prereq package.part package"]


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
