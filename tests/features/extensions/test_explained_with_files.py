"""What ``explain`` adds to an error from the files of the environment that it is raised in."""

from __future__ import annotations

import sys

import pytest

from .conftest import Builder

MISSING = "libcublas.so.12: cannot open shared object file: No such file or directory"
OLDER = (
    "/x/libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12"
)
EXPLAIN = """
import sys, cudaguard
sys.path.insert(0, "site")
{before}
finding = cudaguard.explain(OSError({text!r}))
print(finding.id, *finding.evidence, finding.remedy, sep="\\n")
"""


@pytest.fixture
def explained(child):
    def explained(text, before=""):
        program = child.write("main.py", EXPLAIN.format(text=text, before=before))
        return child.command(sys.executable, program).stdout.splitlines()

    return explained


@pytest.mark.parametrize("is_there", [True, False])
def test_library_that_is_installed_is_not_to_be_installed(child, explained, is_there):
    file = child.folder / "site/nvidia/cublas/lib/libcublas.so.12"
    if is_there:
        Builder(file.parent)(file.name, "int f;", "-Wl,-soname,libcublas.so.12")
    id, *evidence, remedy = explained(MISSING)
    assert id == "CG868"
    assert any("installed: site/nvidia" in line for line in evidence) is is_there
    assert (remedy.startswith("load the installed libcublas.so.12 by its path: ")) is is_there
    assert ("nvidia-cublas-cu12" in remedy) is not is_there


@pytest.mark.parametrize("is_loaded", [True, False])
def test_copy_that_is_in_the_process_is_named(child, explained, is_loaded):
    old = Builder(child.folder / "old")(
        "libnvJitLink.so.12.0.140", "int f;", "-Wl,-soname,libnvJitLink.so.12"
    )
    Builder(child.folder / "site/nvidia/nvjitlink/lib")(
        "libnvJitLink.so.12", "int f;", "-Wl,-soname,libnvJitLink.so.12"
    )
    before = f"import ctypes\nctypes.CDLL({str(old)!r})" if is_loaded else ""
    id, *lines = explained(OLDER, before)
    assert id == "CG842"
    assert (f"in this process: {old}" in lines) is is_loaded
    assert "installed: site/nvidia/nvjitlink/lib/libnvJitLink.so.12" in lines


@pytest.mark.parametrize(("has", "remedy"), [("2.19.0", "pip install 'flow<2.19'"), ("2.18", "")])
def test_package_that_is_not_of_the_version_which_another_requires(child, explained, has, remedy):
    for name, more in (("flow", f"Version: {has}"), ("flow_text", "Requires-Dist: flow<2.19")):
        child.write(f"site/{name}-1.dist-info/METADATA", f"Name: {name}\n{more}\n")
    text = "/env/site-packages/flow_text/_ops.so: undefined symbol: _ZN3tsl5mutexC1Ev"
    id, *lines = explained(text)
    assert (id, remedy in lines[-1], "flow<2.19" in lines[-1]) == ("CG871", True, bool(remedy))
