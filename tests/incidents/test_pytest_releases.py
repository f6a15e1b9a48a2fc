"""The pytest plug-in under the oldest supported pytest and a recent one, with pytest-xdist."""

from __future__ import annotations

import re
import sys

import pytest

from ..tools.test_pytest_plugin import IMPORTS_FAULTY, SHOWS_ORDER, Suite, section
from ..tools.test_pytest_plugin import unpacked as unpacked

pytestmark = pytest.mark.incidents

OLDEST = ("pytest==7.4.0", "pytest-xdist==3.3.1")
RECENT = (
    ("pytest==9.2.0", "pytest-xdist==3.8.0")
    if sys.version_info >= (3, 10)
    else ("pytest==8.4.2", "pytest-xdist==3.8.0")
)
OURS = ("packaging", "importlib-metadata", "tomli")


@pytest.fixture(params=[OLDEST, RECENT], ids=["oldest", "recent"])
def suite(request, child, cached_environment, unpacked):
    suite = Suite(child, cached_environment(*request.param, *OURS))
    suite.env = {**suite.env, "PYTHONPATH": str(unpacked), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    return suite


def test_guard_is_up_before_the_first_conftest(suite):
    suite.child.write("conftest.py", "import target\n")
    suite.child.write("test_it.py", SHOWS_ORDER)
    assert suite.run(plugin=())[0] == 1
    assert suite.run("--cudaguard", plugin=())[0] == 0
    assert suite.run("--cudaguard", "-W", "error", plugin=("-p", "cudaguard"))[0] == 0


def test_guard_that_was_up_before_pytest_costs_no_warning(suite):
    suite.child.write("test_it.py", "def test(): pass\n")
    run = ("-m", "cudaguard", "run", "-m", "pytest", "-W", "error")
    suite.child.command(suite.python, *run, env=suite.env)


def test_every_worker_is_guarded_and_the_controller_tells_of_it(suite):
    suite.child.write("conftest.py", "import target\n")
    suite.child.write("test_it.py", f"{SHOWS_ORDER}\n{IMPORTS_FAULTY}")
    assert suite.run("-n", "2", plugin=())[0] == 1
    report = ("--junitxml=report.xml", "-n", "2")
    status, text = suite.run("--cudaguard", *report, plugin=())
    assert status == 0, text
    told = section(text)
    assert told.count("[LOCAL2] faulty has a fault") == 1
    after = r"first seen after: the collection of test_it.py \(gw[01]\)$"
    assert re.search(after, told, re.MULTILINE)
    assert "cudaguard.LOCAL2" in (suite.child.folder / "report.xml").read_text()
    assert suite.run("--cudaguard-mode=strict", "-n", "2", plugin=())[0] == 1


def test_first_test_is_named_with_its_worker(suite):
    suite.child.write("test_it.py", "def test_0(): pass\ndef test_1(): import faulty\n")
    told = section(suite.run("--cudaguard", "-n", "2", plugin=())[1])
    assert re.search(r"first seen after: test_it.py::test_1 \(gw[01]\)$", told, re.MULTILINE)
    told = section(suite.run("--cudaguard", plugin=())[1])
    assert re.search(r"first seen after: test_it.py::test_1$", told, re.MULTILINE)


def test_worker_that_crashes(suite):
    suite.child.write(
        "test_it.py", f"{IMPORTS_FAULTY}def test_crash():\n    import os; os.abort()\n"
    )
    status, text = suite.run("--cudaguard", "-n", "1", plugin=())
    assert (status, "INTERNALERROR" in text) == (1, False)
    assert "crashed" in text
