"""A watched module's loader must look and behave as its own, to everyone who looks.

Most tests run the same code with and without the guard and compare what it prints.
"""

from __future__ import annotations

import sys
import zipfile

import pytest

SHOW_LOADER = """
def show(module):
    spec, loader = module.__spec__, module.__loader__
    print(module.__name__, type(spec.loader).__name__, type(loader).__name__, loader is spec.loader)
    print(type(spec.loader).__module__, repr(loader), spec.origin, module.__file__, spec.cached)
"""
DURING = "import sys\nfrom show import show\nshow(sys.modules[__name__])\n"
FOUND = "import importlib.util\nloader = importlib.util.find_spec('target').loader\n"
# Up to 3.9 zipimporter knows only `load_module`: such loaders are left alone, and it is told.
PAST_THE_GUARD = "assert [f.id for f in cudaguard.status().findings] == ['CG811']"
WRAPPED = "assert type(loader).__name__ == 'GuardLoader', type(loader)"


@pytest.fixture
def source(pair):
    """A watched module in a file, and its prerequisite."""
    pair.modules("prereq.py")
    pair.module("target.py", "import sys\n", "value = 42\n")
    return pair


@pytest.fixture
def package(pair):
    """A watched package with a data file and a part."""
    pair.modules("prereq.py", "target/part.py")
    pair.module("target/__init__.py", "import sys\n", "value = 42\n")
    pair.child.write("target/data.txt", "some data")
    return pair


def test_loader_identity_during_and_after_exec_of_a_source_module(source):
    source.child.write("show.py", SHOW_LOADER)
    source.module("target.py", DURING)
    lines = source.same("import target, show\nshow.show(target)")
    assert lines[0] == lines[2] == "target SourceFileLoader SourceFileLoader True"


def test_loader_identity_during_and_after_exec_of_a_package(package):
    package.child.write("show.py", SHOW_LOADER)
    package.module("target/__init__.py", DURING, "print(__path__, __package__)\n")
    package.module("target/part.py", DURING)
    package.same(
        "import target.part, show\nshow.show(target)\nshow.show(target.part)",
        watch=("target", "target.part"),
    )


def test_loader_identity_during_and_after_exec_of_a_module_in_a_zip(pair):
    pair.modules("prereq.py")
    pair.child.write("show.py", SHOW_LOADER)
    with zipfile.ZipFile(pair.child.folder / "box.zip", "w") as box:
        box.writestr("target/__init__.py", DURING)
        box.writestr("target/data.txt", "some data")
    lines = pair.same(
        """
        import sys
        sys.path.insert(0, "box.zip")
        import target, show, pkgutil
        show.show(target)
        print(pkgutil.get_data("target", "data.txt"), target.__loader__.archive)
        """,
        proof=PAST_THE_GUARD if sys.version_info < (3, 10) else None,
    )
    assert lines[0] == "target zipimporter zipimporter True"


def test_loader_identity_of_builtin_and_frozen_modules(source):
    """Their loaders are classes, not instances."""
    source.same(
        """
        import sys
        for name in ("_symtable", "__hello__"):
            sys.modules.pop(name, None)
            module = __import__(name)
            print(name, module.__loader__, module.__spec__.loader, module.__spec__)
        """,
        watch=("_symtable", "__hello__"),
    )


def test_isinstance_of_a_found_loader(source):
    lines = source.same(
        FOUND,
        """
        from importlib.machinery import SourceFileLoader, ExtensionFileLoader
        from importlib.abc import SourceLoader, InspectLoader, ResourceLoader
        print(isinstance(loader, SourceFileLoader), isinstance(loader, ExtensionFileLoader))
        print([isinstance(loader, kind) for kind in (SourceLoader, InspectLoader, ResourceLoader)])
        print(loader.__class__.__name__, repr(loader))
        """,
        proof=WRAPPED,
    )
    assert lines[:2] == ["True False", "[True, True, True]"]


def test_importlib_resources(package):
    package.same("""
        import sys, target
        if sys.version_info < (3, 13):
            from importlib.resources import read_text
            import warnings
            warnings.simplefilter("ignore")
            print(read_text("target", "data.txt"))
        from importlib.resources import files
        print(files("target").joinpath("data.txt").read_text())
        print(sorted(item.name for item in files(target).iterdir() if item.is_file()))
    """)


RUN_AS_MAIN = """
import ran
ran.names.append(__name__)
from importlib.machinery import SourceFileLoader
print(*ran.names, type(__loader__).__name__, type(__spec__.loader).__name__)
print(__loader__ is __spec__.loader, __spec__.name, isinstance(__loader__, SourceFileLoader))
"""


@pytest.mark.parametrize("name", ["target.py", "target/__main__.py"])
def test_python_dash_m(pair, name):
    """runpy asks the loader for code and never calls `exec_module`."""
    pair.modules("prereq.py")
    if "/" in name:
        pair.modules("target/__init__.py")
    pair.child.write(name, RUN_AS_MAIN)
    pair.child.write(
        "cudaguard.toml",
        '[[rules]]\nid = "LOCAL1"\nwatch = ["target"]\nneeds = ["prereq"]\nwhy = "test"\n',
    )
    run = "import sys, runpy; sys.argv = ['x']; runpy._run_module_as_main('target')"
    plain = pair.bare(run).lines
    first, second = pair.bare(
        "import cudaguard; cudaguard.install(config='cudaguard.toml')", run
    ).lines
    assert first == "prereq " + plain[0]
    assert second == plain[1]


def test_byte_code_caches_are_the_same(source):
    """A process-wide patch of the cache would poison files of modules nobody watches."""
    read = "import target, pathlib\nprint(pathlib.Path(target.__spec__.cached).read_bytes().hex())"
    source.same(read)
