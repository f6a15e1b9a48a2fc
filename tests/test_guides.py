"""docs/tutorial.md and docs/troubleshooting.md: commands are run, messages are known."""

from __future__ import annotations

import platform
import re
import sys

import pytest

import cudaguard
from cudaguard.tools.catalog import DETECTORS, RULES
from cudaguard.tools.doctor.catalog import CHECKS


@pytest.fixture
def guide(root):
    """Returns the text of a page, and its code blocks of one language."""

    def guide(name, language=""):
        text = (root / "docs" / name).read_text(encoding="utf-8")
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        return blocks if language else text

    return guide


def is_shown(block, printed):
    """Returns whether the lines of a block were printed in that order; ``...`` is anything."""
    lines = block.strip().splitlines()
    pattern = ".*".join(".*".join(map(re.escape, line.split("..."))) for line in lines)
    return re.search(pattern, printed, re.DOTALL) is not None


needs_decord = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="decord 0.6.0 exists for x86-64 Linux only",
)


@needs_decord
def test_tutorial_prints_what_it_shows(child, guide):
    program, at_the_top = guide("tutorial.md", "python")
    broken, warned, asked, fixed, listed = guide("tutorial.md", "text")
    child.write("frames.py", program)

    def run(*command, **env):
        done = child.command(*command, env=env, check=False)
        return done.stdout + done.stderr

    python, guard = (sys.executable, "frames.py"), (sys.executable, "-m", "cudaguard")
    plain = run(*python)
    assert is_shown(broken, plain)
    assert is_shown(warned, run(*python, CUDAGUARD="warn"))
    explained, known = asked.strip().splitlines()
    assert is_shown(explained, run(*guard, "explain", plain))
    assert is_shown(known, run(*guard, "doctor", "--only", "CG901"))
    assert run(*python, CUDAGUARD="fix") == fixed
    assert run(*guard, "run", "frames.py") == fixed
    changes = "\nprint(*cudaguard.status().changes, sep='\\n')"
    assert is_shown(fixed + listed, run(sys.executable, "-c", at_the_top + program + changes))


def messages_of(text):
    rows = text.partition("## The program fails")[2].partition("\n## ")[0]
    return re.findall(r"^\| (?:`` (.*?) ``|`(.*?)`) \|", rows, re.MULTILINE)


def test_every_message_of_troubleshooting_is_explained(guide):
    messages = [one or other for one, other in messages_of(guide("troubleshooting.md"))]
    assert len(messages) > 12
    for message in messages:
        assert cudaguard.explain(message) is not None, message


def test_ids_of_troubleshooting_are_known(guide):
    known = {rule.id for rule in RULES} | {*DETECTORS, *CHECKS}
    assert set(re.findall(r"CG\d\d\d", guide("troubleshooting.md"))) <= known


def test_page_about_forks_quotes_the_error(guide):
    assert "Cannot re-initialize CUDA in forked subprocess" in guide("howto/cuda.md")
