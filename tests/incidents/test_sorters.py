"""The mark that `cudaguard lint` shows between two imports, held against real ruff and isort."""

from __future__ import annotations

import itertools
import json
import sys

import pytest

pytestmark = pytest.mark.incidents

PINS = ("ruff==0.17.5", "isort==9.0.2")
FORMS = ("import {}", "from {} import x", "import {} as y")
NAMES = ("cv2", "decord", "Torch", "torch", "nvidia.dali", "nvidia_x")
RUFF = ("-m", "ruff", "check", "--no-cache", "--isolated", "--select", "I,E402", "--fix", "-q")
ISORT = ("-m", "isort", "-q")


@pytest.mark.parametrize(
    "command",
    [
        RUFF,
        (*RUFF, "--config", "lint.isort.force-sort-within-sections=true"),
        (*RUFF, "--config", "lint.isort.from-first=true"),
        ISORT,
        (*ISORT, "--profile", "google"),
        (*ISORT, "--length-sort", "--from-first"),
    ],
    ids=" ".join,
)
def test_sorters_leave_what_a_mark_keeps(child, cached_environment, command):
    texts = {}
    pairs = itertools.product(itertools.permutations(NAMES, 2), itertools.product(FORMS, FORMS))
    for number, (names, forms) in enumerate(pairs):
        first, then = (form.format(name) for form, name in zip(forms, names))
        texts[f"split{number}.py"] = f"{first}\n# isort: split\n{then}\n"
        texts[f"skip{number}.py"] = f"{first}  # isort: skip\n{then}\n"
    for name, text in texts.items():
        child.write(name, text)
    child.command(cached_environment(*PINS), *command, *texts, check=False)
    wrong = []
    for name, text in texts.items():
        after = (child.folder / name).read_text().splitlines()
        imports = [line for line in after if line.startswith(("import", "from"))]
        if imports[0] != text.splitlines()[0]:
            wrong.append(text)
    assert wrong == []


def test_suggestion_passes_ruff(child, cached_environment):
    """The lines that lint shows, put into a file as they are."""
    rule = "[[rules]]\nid = 'L1'\nwatch = ['decord']\nneeds = ['torch']\nwhy = 'w'\n"
    child.write("cudaguard.toml", rule)
    child.write("train.py", "from decord import cpu\nfrom torch import nn\n")
    lint = (sys.executable, "-m", "cudaguard", "lint", "--config", "cudaguard.toml")
    done = child.command(*lint, "--format", "json", "train.py", check=False)
    (found,) = json.loads(done.stdout)["findings"]
    child.write("train.py", "\n\n".join([*found["write"], "print(cpu, nn)"]) + "\n")
    before = (child.folder / "train.py").read_text()
    child.command(cached_environment(*PINS), *RUFF, "train.py")
    assert (child.folder / "train.py").read_text() == before
    child.command(*lint, "train.py")
