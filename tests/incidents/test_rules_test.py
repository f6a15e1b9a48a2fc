"""``cudaguard rules test``: real programs in fresh environments, with wheels from the index."""

from __future__ import annotations

import os
import platform
import sys
import tempfile

import pytest

from cudaguard.tools.catalog import RULES
from cudaguard.tools.common import Progress
from cudaguard.tools.rules.reproduce import PACKAGE, CannotRunError, Reproduction
from cudaguard.tools.rules.reproducers import REPRODUCERS, Reproducer

from ..documents import valid
from ..kept import about

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="the wheels are those for x86-64 Linux",
    ),
]
COMMAND = (sys.executable, "-m", "cudaguard", "rules", "test")
# By the whole command, in a fresh environment each: the smallest, and one with torch.
WHOLE = ("CG001", "CG003")


@pytest.mark.parametrize("id", WHOLE)
def test_fault_is_there_without_the_guard_and_not_with_it(child, id):
    # What is imported twice need not all be compiled beforehand.
    env = {"TMPDIR": str(child.folder), "PIP_COMPILE": "0"}
    done = child.command(*COMMAND, "--format", "json", id, env=env, timeout=1800, check=False)
    document = valid("rules", done.stdout)
    assert (done.returncode, document["verdict"]) == (0, "needed"), document
    tells_of_the_fault(document, REPRODUCERS[id])
    assert list(child.folder.iterdir()) == []  # nothing stays behind


@pytest.mark.parametrize("id", sorted(set(REPRODUCERS) - set(WHOLE)))
def test_fault_in_an_environment_that_is_kept(kept, id):
    """It was made as the command makes it; equal ones are one."""
    program = REPRODUCERS[id]

    def make(folder):
        folder.mkdir(parents=True)
        rule = next(rule for rule in RULES if rule.id == id)
        Reproduction(rule, program, str(folder), Progress())._make_environment(program.pins)
        (folder / "guard" / "cudaguard").unlink()

    recipe = (about(sys.executable), program.pins, program.more)
    document = reproduced(program, kept.folder("reproduction", recipe, make), id, limit=1800)
    assert document["verdict"] == "needed"
    tells_of_the_fault(document, program)


def tells_of_the_fault(document, program):
    assert document["unguarded"]["works"] is False
    assert document["guarded"]["works"] is True
    pins = dict(pin.split("==") for pin in program.pins)
    found = document["versions"].items()
    assert {name: version.partition("+")[0] for name, version in found} == pins


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

    def __init__(self, made, *words):
        super().__init__(*words)
        self.made = made

    def _make_environment(self, wanted):
        os.symlink(os.path.join(self.made, "venv"), os.path.join(self._folder, "venv"))
        os.mkdir(self._guard)
        os.symlink(PACKAGE, os.path.join(self._guard, "cudaguard"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a reproduction with packaging 25.0."""
    folder = tmp_path_factory.mktemp("made")
    program = Reproducer("no_program.py", ["packaging==25.0"], ["packaging"])
    Reproduction(RULES[0], program, str(folder), Progress())._make_environment(program.pins)
    return folder


def reproduced(program, made=None, id="CG001", limit=60):
    rule = next(rule for rule in RULES if rule.id == id)
    with tempfile.TemporaryDirectory() as folder:
        words = (rule, program, folder, Progress())
        reproduction = InMadeEnvironment(made, *words) if made else Reproduction(*words)
        return reproduction.document(newest=False, limit=limit)
