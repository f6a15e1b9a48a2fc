"""Other people's finders, before and behind ours: old, broken, delegating."""

from __future__ import annotations

import sys

import pytest

from .conftest import FIND


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


@pytest.mark.parametrize("position", [0, 1])
def test_finder_that_asks_all_others(pair, position):
    """It leaves out itself; were it not left out in its turn, the two would ask without end."""
    pair.modules("target.py", "prereq.py")
    lines = pair.guarded(
        f"position = {position}",
        """
        class Asking:
            def find_spec(self, name, path=None, target=None):
                for finder in sys.meta_path:
                    spec = None if finder is self else finder.find_spec(name, path, target)
                    if spec is not None:
                        return spec
        sys.meta_path.insert(position, Asking())
        import target
        print(type(target.__loader__).__name__)
        """,
        pair.NAMES,
    ).lines
    assert lines == ["SourceFileLoader", "prereq target"]


def test_search_is_guarded_while_another_thread_searches_for_the_same_module(pair):
    """Who is on the way to the other finders is remembered per thread.

    importlib asks finders under its process-wide lock; tools that ask them directly do not.
    """
    pair.modules("target.py", "prereq.py")
    lines = pair.guarded(
        FIND,
        """
        import threading
        inside, out = threading.Event(), threading.Event()
        def find(name, path=None, target=None):
            if threading.current_thread() is slow:
                inside.set()
                out.wait(20)
        sys.meta_path.insert(1, Finder(find))
        search = sys.meta_path[0].find_spec
        slow = threading.Thread(target=search, args=("target",), daemon=True)
        slow.start()
        inside.wait(20)
        print(type(search("target").loader).__name__)
        out.set()
        slow.join(20)
        """,
        proof="",
    ).lines
    assert lines == ["GuardLoader"]


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="Python itself waits there for the package, without end"
)
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
