"""Modules that are executed again, or later than they are imported, or not under their own name."""

from __future__ import annotations

LAZILY = """
import importlib.util, sys
def lazily(name):
    spec = importlib.util.find_spec(name)
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module
"""


def test_reload_runs_the_prerequisites_again(pair):
    pair.modules("target.py", "prereq.py")
    lines = pair.guarded(
        """
        import importlib, target
        del sys.modules["prereq"]
        importlib.reload(target)
        """,
        pair.NAMES,
    ).lines
    assert lines == ["prereq target prereq target"]


def test_reload_leaves_the_real_loader(pair):
    pair.modules("target.py", "prereq.py")
    lines = pair.same("""
        import importlib, target
        before = target.__loader__
        again = importlib.reload(target)
        print(again is target, type(target.__loader__).__name__, target.__loader__ == before)
        print(target.__spec__.loader is target.__loader__, target.__spec__)
    """)
    assert lines[:1] == ["True SourceFileLoader True"]


def test_reload_finds_a_module_that_has_moved(pair):
    pair.module("one/target.py", "", "where = 'one'\n")
    pair.module("two/target.py", "", "where = 'two'\n")
    lines = pair.same("""
        import importlib, os, sys
        sys.path.insert(0, "one")
        import target
        sys.path[0] = "two"
        importlib.reload(target)
        print(target.where, os.path.relpath(target.__file__), target.__spec__.origin)
    """)
    assert lines[0].startswith("two two/target.py")


def test_reload_that_fails_keeps_the_old_module(pair):
    pair.modules("prereq.py")
    lines = pair.same("""
        import importlib
        open("target.py", "w").write("value = 42")
        import target
        open("target.py", "w").write("1 / 0  # longer than before, so that no cache is used")
        try:
            importlib.reload(target)
        except ZeroDivisionError:
            import sys
            print(sys.modules["target"] is target, target.value, target.__loader__)
        open("target.py", "w").write("value = 43  # even longer than that, and not by accident")
        importlib.reload(target)
        print(target.value)
    """)
    assert lines[0].startswith("True 42")
    assert lines[1:] == ["43"]


def test_lazy_loader_runs_nothing_at_registration_and_prerequisites_at_first_use(pair):
    pair.modules("prereq.py")
    pair.module("target.py", "", "value = 42\n")
    lines = pair.guarded(
        LAZILY,
        """
        import ran
        target = lazily("target")
        print(*ran.names, "prereq" in sys.modules)
        print(target.value, *ran.names)
        print(type(target).__name__, type(target.__loader__).__name__)
        print(target.__loader__ is target.__spec__.loader, sys.modules["target"] is target)
        """,
    ).lines
    assert lines == ["False", "42 prereq target", "module SourceFileLoader", "True True"]


def test_lazy_loader_leaves_what_it_leaves_without_the_guard(pair):
    pair.module("target.py", "", "value = 42\n")
    pair.same(
        LAZILY,
        """
        from importlib.machinery import SourceFileLoader
        target = lazily("target")
        loader = object.__getattribute__(target, "__loader__")
        print(type(target).__name__, loader.__class__, isinstance(loader, SourceFileLoader))
        print(target.value, target.__spec__, target.__loader__, sorted(vars(target)))
        """,
    )


def test_lazy_loader_of_a_path_hook(pair):
    """Here the lazy loader is behind the guard, which prepares early to be safe."""
    pair.modules("prereq.py")
    pair.module("lazy/target.py", "", "value = 42\n")
    lines = pair.guarded(
        """
        import importlib.util, ran
        from importlib.machinery import SourceFileLoader, FileFinder
        factory = importlib.util.LazyLoader.factory(SourceFileLoader)
        finder = FileFinder("lazy", (factory, [".py"]))
        sys.path_importer_cache["lazy"] = finder
        sys.path.insert(0, "lazy")
        import target
        print(*ran.names)
        print(target.value, *ran.names)
        """
    ).lines
    assert lines == ["prereq", "42 prereq target"]


def test_module_that_replaces_itself_in_sys_modules(pair):
    pair.modules("prereq.py")
    pair.module(
        "target.py",
        "",
        """
        import sys
        class Target:
            value = 42
            __spec__ = __spec__
        sys.modules[__name__] = Target()
        """,
    )
    lines = pair.same("""
        import sys, target
        print(type(target).__name__, target.value, sys.modules["target"] is target)
        print(target.__spec__.loader)
    """)
    assert lines[0] == "Target 42 True"


def test_module_object_that_refuses_attributes(pair):
    """The loader is put back where that is possible; where it is not, the import goes on."""
    pair.modules("prereq.py")
    pair.child.write(
        "target.py",
        """
        import sys
        class Frozen:
            __slots__ = ()
            value = 42
        sys.modules[__name__] = Frozen()
        """,
    )
    assert pair.same("import target; print(target.value)") == ["42"]
