"""Extension modules: what must come first must come before they are mapped, by whatever route.

A library is mapped when the module is created, and torch's JIT asks no finder at all.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BY_FILE = """
import importlib.util, glob, sys
def by_file(name, file=None):
    file = file or glob.glob(name + ".*.so")[0]
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
# As a prerequisite: is the library that it has to precede in the process already?
IS_MAPPED = """
def mapped(name):
    with open("/proc/self/maps") as maps:
        return any("/" + name in line for line in maps)
"""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="the platform has no /proc/self/maps"
)
ROUTES = {"by-name": "import target", "by-file": "target = by_file('target')"}


@needs_proc
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_prerequisites_run_before_the_library_is_mapped(native, phase, route):
    native.extension("target", *phase)
    native.child.write("maps.py", IS_MAPPED)
    native.child.write("prereq.py", "import maps\nprint(maps.mapped('target.'))\n")
    lines = native.guarded(BY_FILE, route, "import maps; print(maps.mapped('target.'))").lines
    assert lines == ["False", "True"]


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_failing_prerequisite_is_tried_once_per_load(native, phase, route):
    """Both the finder's loader and the patch of the class see a plain import."""
    native.extension("target", *phase)
    native.child.write("prereq.py", "import ran\nran.names.append('attempt')\n1 / 0\n")
    ran = native.guarded(BY_FILE, route, native.NAMES, native.FINDINGS)
    assert ran.lines == ["attempt target", "CG801"]


@pytest.mark.parametrize("fails", [False, True])
def test_journal_has_one_line_for_the_end_of_the_import(native, phase, fails):
    """An extension passes the patch when it is mapped and the loader when it is executed."""
    native.extension("target", *phase, *(["MISSING_SYMBOL"] if fails else []))
    kinds = """
    print([e.kind for e in cudaguard.status().events if e.name == "target"])
    """
    load = "try:\n    import target\nexcept ImportError:\n    pass"
    lines = native.guarded(load, kinds, env={"CUDAGUARD_JOURNAL": "journal"}).lines
    assert lines == [str(["import", "failed" if fails else "imported"])]


def test_loader_identity_of_an_extension(native, phase):
    native.extension("target", *phase)
    lines = native.same("""
        import target
        print(target.__loader__, type(target.__loader__).__name__, target.__spec__)
        print(target.__spec__.loader is target.__loader__, target.__file__)
    """)
    assert " ExtensionFileLoader " in lines[0]


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_prerequisite_that_imports_the_extension_itself(native, phase, route):
    native.extension("target", *phase)
    native.module("prereq.py", after="import target\nassert target.answer() == 42\n")
    lines = native.guarded(
        BY_FILE,
        route,
        """
        import prereq
        print(target is prereq.target, type(target.__spec__.loader).__name__)
        """,
        native.NAMES,
    ).lines
    assert lines == ["True ExtensionFileLoader", "prereq target"]


def test_other_file_of_the_same_name_is_not_replaced_by_what_a_prerequisite_imported(native):
    native.extension("target", "MULTI_PHASE")
    other = native.extension("target", "MULTI_PHASE", at="other")
    native.module("prereq.py", after="import target\n")
    lines = native.guarded(
        BY_FILE,
        f"""
        module = by_file("target", {str(other)!r})
        print(module is sys.modules["target"], module.__file__ == {str(other)!r})
        """,
        native.NAMES,
    ).lines
    assert lines == ["False True", "prereq target target"]


def test_second_load_of_one_file(native, phase):
    """Single-phase modules exist once per file, the others once per load, guarded or not."""
    native.extension("target", *phase)
    lines = native.same(
        BY_FILE,
        """
        first, second = by_file("target"), by_file("target")
        print(first is second, first.answer(), second.answer(), "target" in sys.modules)
        import target
        print(target is first, target is second)
        """,
    )
    assert lines[0].startswith(f"{not phase} 42 42")


@pytest.mark.parametrize("name", ["target_v1", "target_v12"])
def test_rebuilt_jit_extension_is_known_by_its_stem(native, name):
    """torch renames a module that it has to build again in one process."""
    native.extension(name)
    native.modules("prereq.py")
    lines = native.guarded(
        BY_FILE, f"print(by_file({name!r}).answer())", native.NAMES, proof=""
    ).lines
    assert lines == ["42", f"prereq {name}"]


@pytest.mark.parametrize("name", ["target_vx", "target_v", "target2", "targetv1"])
def test_similar_names_are_not_watched(native, name):
    native.extension(name)
    native.modules("prereq.py")
    lines = native.guarded(BY_FILE, f"by_file({name!r})", native.NAMES, proof="").lines
    assert lines == [name]


def test_native_part_of_a_watched_package(native, phase):
    """The package has had its turn: nothing is imported, tried or told a second time."""
    native.extension("part", *phase, at="target")
    native.module("target/__init__.py", after="from target import part\n")
    native.child.write("prereq.py", "import ran\nran.names.append('attempt')\n1 / 0\n")
    ran = native.guarded("import target; print(target.part.answer())", native.NAMES)
    assert ran.lines == ["42", "attempt target part"]
    assert ran.err.count("could not be imported") == 1


def test_watched_native_part_of_a_package(native, phase):
    native.extension("part", *phase, at="package")
    native.modules("prereq.py", "package/__init__.py")
    lines = native.guarded("import package.part", native.NAMES, watch=("package.part",)).lines
    assert lines == ["package prereq part"]


def test_rebuilt_watched_part_of_a_package(native):
    native.extension("part_v1", at="package")
    native.modules("prereq.py")
    lines = native.guarded(
        BY_FILE,
        "import glob; by_file('package.part_v1', glob.glob('package/part_v1.*')[0])",
        native.NAMES,
        watch=("package.part",),
        proof="",
    ).lines
    assert lines == ["prereq part_v1"]


@needs_proc
def test_lazy_loader_around_an_extension(native, phase):
    """An extension is mapped at registration, so that is when the prerequisites must run."""
    native.extension("target", *phase)
    native.child.write("maps.py", IS_MAPPED)
    native.child.write("prereq.py", "import maps, ran\nran.names.append(maps.mapped('target.'))\n")
    lines = native.guarded(
        """
        import importlib.util, maps, ran
        spec = importlib.util.find_spec("target")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        target = sys.modules["target"] = importlib.util.module_from_spec(spec)
        print(*ran.names[:1], maps.mapped("target."))
        """,
        "spec.loader.exec_module(target)\nprint(target.answer())" if phase else "",
    ).lines
    assert lines == ["False True", "42"] if phase else ["False True"]


def test_unwatched_extension_passes(native, phase):
    native.extension("bystander", *phase)
    lines = native.same(BY_FILE, "print(by_file('bystander'))\nimport bystander", proof="")
    assert len(lines) == 1


FAILING = {"init": "FAILING", "missing-symbol": "MISSING_SYMBOL"}
FRAMES = """
import traceback
def failing(action):
    try:
        action()
    except BaseException as error:
        print(type(error).__name__, error, error.name, error.path)
        traceback.print_tb(error.__traceback__, file=sys.stdout)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="frames cannot be hidden before 3.11")
@pytest.mark.parametrize("name", ["target", "bystander"])
@pytest.mark.parametrize("fault", FAILING.values(), ids=FAILING)
def test_frames_of_a_failing_extension(native, phase, fault, name):
    """In `fix` an extension that the loader refuses is told of by an error of ours."""
    native.extension(name, *phase, fault)
    native.modules("prereq.py")
    native.same(
        BY_FILE,
        FRAMES,
        f"failing(lambda: __import__({name!r}))\nfailing(lambda: by_file({name!r}))",
        "print([name in sys.modules for name in ('target', 'bystander')])",
        proof="" if name == "bystander" else None,
        mode="observe" if fault == "MISSING_SYMBOL" else "fix",
    )


def test_failing_extension_fails_as_ever_on_every_version(native, phase):
    native.extension("target", *phase, "FAILING")
    native.same(
        """
        try:
            import target
        except ImportError as error:
            print(error, error.name, error.path)
        """
    )
