"""Specs, loaders and module objects that are unlike those of files."""

from __future__ import annotations

import sys

import pytest

from .conftest import FIND


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
        ours = spec.loader
        importlib.util.find_spec("target")
        print(type(ours).__name__, spec.loader is ours)
        import target
        print(target.__loader__ is real, spec.loader is real)
        del sys.modules["target"], sys.modules["prereq"]
        import target
        print(target.__loader__ is real, spec.loader is real)
        """,
        pair.NAMES,
    ).lines
    assert lines == [
        "[True, True]",
        "GuardLoader True",
        "True True",
        "True True",
        "prereq target prereq target",
    ]


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


UNUSUAL = """
import types
class Unusual(types.ModuleType):
    \"\"\"Shows every attribute that somebody reads; its loader can be set once.\"\"\"
    def __getattribute__(self, name):
        if shown: print("reads", name)
        return super().__getattribute__(name)
    def __setattr__(self, name, value):
        now = object.__getattribute__(self, "__dict__").get(name)
        if name == "__loader__" and now is not None: raise TypeError(name)
        super().__setattr__(name, value)
shown = []
class Loader:
    def create_module(self, spec): return Unusual(spec.name)
    def exec_module(self, module): shown.clear()
class Finding:
    def find_spec(self, name, path=None, target=None):
        if name == "target": return importlib.machinery.ModuleSpec(name, Loader())
sys.meta_path.insert(1 if "cudaguard" in sys.modules else 0, Finding())
"""


@pytest.mark.parametrize("shown", ["", "shown.append(1)"])
def test_module_object_of_an_unusual_class(pair, shown):
    """A lazy module would load itself at the first look, so nobody may look who did not before."""
    pair.modules("prereq.py")
    journal = {"CUDAGUARD_JOURNAL": "journal.jsonl"}  # keeps the guard's loader until the end
    pair.same(FIND, UNUSUAL, shown, "import target; print(type(target).__name__)", env=journal)
