"""``cudaguard rules test``: real programs in fresh environments, with wheels from the index."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile

import pytest

from cudaguard.tools.catalog import RULES
from cudaguard.tools.common import Progress
from cudaguard.tools.rules.reproduce import CannotRunError, Reproduction
from cudaguard.tools.rules.reproducers import REPRODUCERS, Reproducer

from ..documents import valid

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="the wheels are those for x86-64 Linux",
    ),
]
COMMAND = (sys.executable, "-m", "cudaguard", "rules", "test")
RULE = next(rule for rule in RULES if rule.id == "CG001")


@pytest.mark.parametrize("id", REPRODUCERS)
def test_fault_is_there_without_the_guard_and_not_with_it(child, id):
    # What is imported twice need not all be compiled beforehand.
    env = {"TMPDIR": str(child.folder), "PIP_COMPILE": "0"}
    done = child.command(*COMMAND, "--format", "json", id, env=env, timeout=1800, check=False)
    document = valid("rules", done.stdout)
    assert (done.returncode, document["verdict"]) == (0, "needed"), document
    assert document["unguarded"]["works"] is False
    assert document["guarded"]["works"] is True
    pins = dict(pin.split("==") for pin in REPRODUCERS[id].pins)
    found = document["versions"].items()
    assert {name: version.partition("+")[0] for name, version in found} == pins
    assert list(child.folder.iterdir()) == []  # nothing stays behind


def test_newest_releases(child):
    env = {"PIP_COMPILE": "0"}
    done = child.command(*COMMAND, "--latest", "CG001", env=env, timeout=600, check=False)
    assert done.returncode in (0, 1)  # decord may be repaired some day
    assert "without the guard: " in done.stdout
    assert "result: " in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("print('fine')", "not-needed"),
        ("raise SystemExit(1)", "not-cured"),
        ("import os; raise SystemExit('CUDAGUARD' in os.environ)", "not-cured"),
        ("import os; raise SystemExit(os.environ.get('CUDAGUARD') == 'off')", "needed"),
        ("import time; time.sleep(600)", "not-cured"),
    ],
)
def test_verdicts(child, made, code, verdict):
    script = child.write("program.py", code)
    program = Reproducer(str(script), ["packaging==25.0"], ["packaging"])
    document = reproduced(program, made, limit=5)
    assert (document["verdict"], document["versions"]) == (verdict, {"packaging": "25.0"})


def test_what_the_user_tells_pip_does_not_reach_the_environment(child, monkeypatch):
    monkeypatch.setenv("PIP_QUIET", "2")
    monkeypatch.setenv("PIP_TARGET", str(child.folder / "elsewhere"))
    script = child.write("program.py", "import packaging")
    document = reproduced(Reproducer(str(script), ["packaging==25.0"], ["packaging"]))
    assert (document["verdict"], document["versions"]) == ("not-needed", {"packaging": "25.0"})


@pytest.mark.parametrize("code", ["import absent_module", "raise SystemExit(125)"])
def test_program_that_cannot_tell(child, made, code):
    script = child.write("program.py", code)
    with pytest.raises(CannotRunError, match="the program cannot tell"):
        reproduced(Reproducer(str(script), ["packaging==25.0"], ["packaging"]), made)


class InMadeEnvironment(Reproduction):
    """Has the environment of another one, which has the same pins."""

    made = ""

    def _make_environment(self, wanted):
        for name in os.listdir(self.made):
            os.symlink(os.path.join(self.made, name), os.path.join(self._folder, name))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The environment of a reproduction with packaging 25.0, and its link to the guard."""
    folder = tmp_path_factory.mktemp("made")
    script = folder / "program.py"
    script.write_text("import packaging", encoding="utf-8")
    whole = folder / "whole"
    whole.mkdir()
    program = Reproducer(str(script), ["packaging==25.0"], ["packaging"])
    made = Reproduction(RULE, program, str(whole), Progress())
    assert made.document(newest=False, limit=60)["verdict"] == "not-needed"
    for run in ("guarded", "unguarded"):
        shutil.rmtree(whole / run)
    return str(whole)


def reproduced(program, made="", limit=60):
    kind = InMadeEnvironment if made else Reproduction
    with tempfile.TemporaryDirectory() as folder:
        reproduction = kind(RULE, program, folder, Progress())
        reproduction.made = made
        return reproduction.document(newest=False, limit=limit)
