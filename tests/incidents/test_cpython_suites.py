"""CPython's own tests of its import system, with the guard in every interpreter they start.

Who wants to know whether an import hook is transparent can ask the people who wrote the import
system: their suites must end the same with the guard as without it. A line in a ``.pth`` file of
a scratch environment puts the guard up in all children, isolated ones (``-I``) included.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import cudaguard

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        importlib.util.find_spec("test") is None
        or importlib.util.find_spec("test.libregrtest") is None,
        reason="this Python came without its `test` package",
    ),
]
SUITES = (
    "test_importlib", "test_import", "test_runpy", "test_pkgutil", "test_zipimport",
    "test_threaded_import", "test_ctypes",
)  # fmt: skip
FOREIGN = ("CUDAGUARD", "PYTHON", "COV_")  # variables that would change what is compared
LIMIT = 600  # seconds for all suites together

# Rules without effect: the hook is in force, nothing is imported before anything else.
FEW = """
import cudaguard
NAMES = (
    "json", "email", "collections", "importlib.util", "importlib.resources", "zipfile", "ctypes",
    "test.test_importlib", "test.test_import", "test.support", "_testcapi", "_testmultiphase",
    "_testsinglephase", "__hello__", "__phello__", "a", "mod", "package", "pkg", "namespace", "x",
    "test_pkg", "ziptestmodule", "testmod", "spam", "foo", "concurrent.futures", "time",
)
cudaguard.install(rules=[cudaguard.Rule("SUITES1", NAMES, "test")])
"""
EVERY = """
import cudaguard
from cudaguard.core.lifecycle import activation
class Everything(dict):
    def __contains__(self, name):
        return True
cudaguard.install().mode  # which wakes it
core = activation.core
core.kernel.watched = Everything()
"""
# With a journal the loader stays until the end of each import, to note how it went.
JOURNALLED = EVERY + "core.journal.write_to('/dev/null')\n"
ASLEEP = "import cudaguard\ncudaguard.install()\n"
SETTINGS = {"asleep": ASLEEP, "few": FEW, "every": EVERY, "journalled": JOURNALLED}
IS_GUARDED = """
import sys, json.tool
from cudaguard import status
assert [type(f).__name__ for f in sys.meta_path].count("GuardFinder") == 1, sys.meta_path
print(*[e.name for e in status().events if e.kind == "import"])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Makes an environment that runs `code` at each start of its interpreter."""

    def make(name: str, code: str) -> Path:
        folder = tmp_path_factory.mktemp("suites") / name
        venv.create(folder, symlinks=True)
        site = (
            folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        )
        shutil.copytree(Path(cudaguard.__file__).parent, site / "cudaguard")
        (site / "at_each_start.py").write_text(code)
        (site / "at_each_start.pth").write_text("import at_each_start\n")
        return folder / "bin" / "python"

    return make


@pytest.fixture(scope="module")
def results(environment, tmp_path_factory):
    """The outcome of all suites: how many cases ran, and those that did not succeed."""
    known = {}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}

    def run(name: str, code: str):
        if name not in known:
            report = tmp_path_factory.mktemp("report") / "report.xml"
            command = [environment(name, code), "-m", "test", "-j2", "--junit-xml", report, *SUITES]
            done = subprocess.run(
                command,
                cwd=report.parent,
                env=kept,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
            assert report.exists(), done.stdout + done.stderr
            known[name] = read(report)
        return known[name]

    return run


def read(report: Path):
    """Return the names of all cases, and of those that failed, each with the kind of failure."""
    cases, failed = [], []
    for case in ET.parse(report).iter("testcase"):
        name = str(case.get("name"))  # a suite that fails as a whole has none
        cases.append(name)
        failed += [(name, part.tag) for part in case if part.tag in ("failure", "error")]
    return sorted(cases), sorted(failed)


@pytest.mark.parametrize("name", SETTINGS)
def test_suites_end_as_without_the_guard(results, name):
    if name == "journalled" and sys.version_info < (3, 11):
        pytest.skip("before 3.11 the frames of importlib cannot be hidden in this case")
    cases, failed = results(name, SETTINGS[name])
    plain_cases, plain_failed = results("unguarded", "")
    assert len(plain_cases) > 1000
    assert failed == plain_failed
    assert cases == plain_cases


@pytest.mark.parametrize("flags", [(), ("-I",), ("-E",), ("-s",)])
@pytest.mark.parametrize("name", SETTINGS)
def test_guard_is_there_in_each_interpreter(environment, child, name, flags):
    """Without this, the suites would prove nothing."""
    python = environment(name, SETTINGS[name])
    seen = child.python(IS_GUARDED, python=python, flags=flags).stdout.split()
    assert ("json" in seen) == (name != "asleep")
    assert ("json.tool" in seen) == (name in ("every", "journalled"))


def test_unguarded_environment_has_no_guard(environment, child):
    python = environment("unguarded", "")
    out = child.python("import sys; print('cudaguard' in sys.modules)", python=python).stdout
    assert out == "False\n"
