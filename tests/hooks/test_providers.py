"""An extension names a library that the loader finds only once another module has loaded it.

As extensions built against torch do with libc10.so. Here `provider` has libprovided.so.1 in its
own folder and loads it when it is imported; `target` needs it.
"""

from __future__ import annotations

import shutil
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names are read from ELF files")

PROVIDED = "int provided(void) { return 42; }"
PROVIDER = """
import ctypes, os, ran
ran.names.append("provider")
ctypes.CDLL(os.path.join(os.path.dirname(__file__), "libprovided.so.1"))
"""
ROUTES = {
    "by-name": "import target",
    "by-file": """
import importlib.util
spec = importlib.util.spec_from_file_location("target", "target.so")
target = importlib.util.module_from_spec(spec)
spec.loader.exec_module(target)
""",
}
RULE = "watch=('provider',), actions=({'provide_libraries': 'libprovided*.so*'},)"
TRY = """
try:
{route}
    print(target.ask())
except ImportError as error:
    print("cannot open shared object" in str(error))
import ran
print(*ran.names)
"""


@pytest.fixture
def scene(pair, compiler):
    """The provider's folder and the extension beside it."""
    folder, flags = pair.child.folder, ("-Wl,-soname,libprovided.so.1",)
    built = compiler.put(folder / "provider/libprovided.so.1", PROVIDED, *flags)
    shutil.copy(compiler.asking("target", "provided", str(built)), folder / "target.so")
    pair.child.write("ran.py", "names = []\n")
    pair.child.write("provider/__init__.py", PROVIDER)
    return pair


def run(scene, route, mode="fix", rule=RULE, before=""):
    body = "\n".join("    " + line for line in ROUTES[route].strip().splitlines())
    return scene.bare(f"""
import sys, cudaguard
{before}
cudaguard.install({mode!r}, rules=[cudaguard.Rule('PROV1', {rule}, why='test')])
{TRY.format(route=body)}
print([f.id for f in cudaguard.status().findings])
""")


@pytest.mark.parametrize("route", ROUTES)
def test_without_the_guard_the_library_is_not_found(scene, route):
    body = "\n".join("    " + line for line in ROUTES[route].strip().splitlines())
    assert scene.bare(TRY.format(route=body)).lines == ["True", ""]


@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize("route", ROUTES)
def test_provider_is_imported_first(scene, route, mode):
    ran = run(scene, route, mode)
    assert ran.lines == ["42", "provider", "[]"]
    assert ran.err == ""


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_other_modes_tell_and_import_nothing(scene, mode):
    ran = run(scene, "by-name", mode)
    assert ran.lines == ["True", "", "['PROV1']"]
    told = "target needs libprovided.so.1 of provider, which is not imported yet"
    assert (told in ran.err) is (mode == "warn")


BETWEEN = "int provided(void); int between(void) { return provided(); }"


@pytest.fixture
def indirect(scene, compiler):
    """The extension needs a library between, and only that one needs the provider's."""
    folder = scene.child.folder
    flags = ("-Wl,-soname,libbetween.so.1", f"{folder}/provider/libprovided.so.1")
    between = compiler.put(folder / "libbetween.so.1", BETWEEN, *flags)
    flags = ("-Wl,--allow-shlib-undefined", str(between), "-Wl,-rpath,$ORIGIN")
    shutil.copy(compiler.asking("target", "between", *flags), folder / "target.so")
    return scene


@pytest.mark.parametrize("route", ROUTES)
def test_library_that_only_another_library_needs(indirect, route):
    body = "\n".join("    " + line for line in ROUTES[route].strip().splitlines())
    assert indirect.bare(TRY.format(route=body)).lines == ["True", ""]
    assert run(indirect, route).lines == ["42", "provider", "[]"]
    told = run(indirect, route, "warn")
    assert told.lines == ["True", "", "['PROV1']"]
    assert "target needs libprovided.so.1 of provider" in told.err


def test_code_of_an_extension_that_says_as_the_loader_does_runs_once(scene, compiler):
    """It has been mapped, and begun: a second time would be no first one."""
    source = """
#include <Python.h>
#include <stdio.h>
PyMODINIT_FUNC PyInit_target(void) {
    puts("begun");
    PyErr_SetString(PyExc_ImportError, "libprovided.so.1: cannot open shared object file: No");
    return 0;
}
"""
    compiler.put(scene.child.folder / "target.so", source)
    lines = run(scene, "by-name").lines
    assert lines.count("begun") == 1
    assert "provider" not in lines


def test_provider_that_is_there_is_not_imported_again(scene):
    ran = run(scene, "by-name", "strict", before="import provider")
    assert ran.lines == ["42", "provider", "[]"]


def test_provider_that_is_not_installed_is_no_fault(scene):
    rule = RULE.replace("provider", "nowhere")
    assert run(scene, "by-name", "strict", rule).lines == ["True", "", "[]"]


def test_provider_that_fails_is_told_and_the_loader_has_the_word(scene):
    scene.child.write("provider/__init__.py", "1 / 0")
    ran = run(scene, "by-name")
    assert ran.lines == ["True", "", "['CG801']"]
    assert "provider could not be imported before target" in ran.err


def test_provider_that_fails_is_an_error_in_strict(scene):
    scene.child.write("provider/__init__.py", "1 / 0")
    ran = scene.bare(f"""
import cudaguard
cudaguard.install("strict", rules=[cudaguard.Rule('PROV1', {RULE}, why='test')])
try:
    import target
except cudaguard.ImportOrderError as error:
    print(error, "|", repr(error.__cause__))
""")
    line = "\n".join(ran.lines)
    assert line.startswith("provider could not be imported before target, as rule PROV1 requires.")
    assert line.endswith("| ZeroDivisionError('division by zero')")


def test_provider_that_imports_the_extension_itself_leaves_one_module(scene):
    scene.child.write("provider/__init__.py", PROVIDER + "import target\nfirst = target\n")
    ran = scene.bare(f"""
import cudaguard
cudaguard.install(rules=[cudaguard.Rule('PROV1', {RULE}, why='test')])
import target, provider
print(target.ask(), target is provider.first)
""")
    assert ran.lines == ["42 True"]


@pytest.mark.parametrize(
    "rule",
    [
        "watch=('provider',), actions=({'provide_libraries': 'libother*.so*'},)",
        f"{RULE}, when={{'platform': 'nonesuch'}}",
        f"{RULE}, dist=('no-such-distribution',)",
        f"{RULE}, grade='opt-in'",
    ],
)
def test_rule_that_does_not_apply_imports_nothing(scene, rule):
    assert run(scene, "by-name", rule=rule).lines == ["True", "", "[]"]


def test_extension_that_needs_nothing_special_costs_no_import_of_ours(native):
    native.extension("target")
    lines = native.bare("""
        import sys, cudaguard
        cudaguard.install()
        import target
        print([n for n in sys.modules if n.startswith("cudaguard.") and n.rpartition(".")[2] in
               ("request", "decide", "facts", "messages")])
    """).lines
    assert lines == ["[]"]


def test_provider_that_a_rule_lets_follow_the_extension_does_not_recurse(scene):
    """The one rule wants the extension first, the other its provider before the extension."""
    ran = scene.bare(f"""
import cudaguard
cudaguard.install("strict", rules=[
    cudaguard.Rule('PROV1', {RULE}, why='test'),
    cudaguard.Rule('ORDER1', watch=('provider',), needs=('target',), why='test'),
])
import provider, target
print(target.ask())
import ran, sys
print(*ran.names, sys.modules['provider'] is provider)
""")
    assert ran.lines == ["42", "provider True"]
    assert ran.err == ""
