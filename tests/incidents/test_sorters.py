"""What `cudaguard lint` says of import sorters, held against real ruff and isort."""

from __future__ import annotations

import ast
import itertools
import json
import sys

import pytest

from cudaguard.system.source import imports_in
from cudaguard.tools.lint.policy import is_kept_by_sorters

pytestmark = pytest.mark.incidents

PINS = ("ruff==0.17.5", "isort==9.0.2")
FORMS = ("import {}", "from {} import x", "import {} as y")
NAMES = ("cv2", "decord", "Torch", "torch", "nvidia.dali", "nvidia_x")
RUFF = ("-m", "ruff", "check", "--no-cache", "--isolated", "--select", "I,E402", "--fix", "-q")
BY_NAME = "lint.isort.force-sort-within-sections=true"


@pytest.fixture
def sorted_by(child, cached_environment):
    """Sorts many files at once; returns name -> whether the first import still is the first."""

    def sorted_by(files, *command):
        for name, text in files.items():
            child.write(f"{name}.py", text)
        names = [f"{name}.py" for name in files]
        child.command(cached_environment(*PINS), *command, *names, check=False)
        result = {}
        for name, text in files.items():
            after = (child.folder / f"{name}.py").read_text().splitlines()
            imports = [line for line in after if line.startswith(("import", "from"))]
            result[name] = imports[0] == text.splitlines()[0]
        return result

    return sorted_by


def pairs(*, capitals=True):
    for (one, other), (first, second) in itertools.product(
        itertools.permutations([n for n in NAMES if capitals or n.islower()], 2),
        itertools.product(FORMS, FORMS),
    ):
        yield f"{first.format(one)}\n{second.format(other)}\n"


@pytest.mark.parametrize(
    ("command", "by_name"),
    [
        (RUFF, False),
        ((*RUFF, "--config", BY_NAME), True),
        (("-m", "isort", "-q"), False),
        (("-m", "isort", "-q", "--force-sort-within-sections"), True),
    ],
    ids=["ruff", "ruff by name", "isort", "isort by name"],
)
def test_prediction(sorted_by, command, by_name):
    # isort compares names with capitals in ways that depend on its version and options.
    names = pairs(capitals="ruff" in command)
    files = {f"f{number}": text for number, text in enumerate(names)}
    kept = sorted_by(files, *command)
    wrong = []
    for name, text in files.items():
        first, then = imports_in(ast.parse(text))
        if is_kept_by_sorters(first, then, by_name=by_name) is not kept[name]:
            wrong.append(text)
    assert wrong == []


@pytest.mark.parametrize("command", [RUFF, ("-m", "isort", "-q")], ids=["ruff", "isort"])
def test_remedies_hold(sorted_by, command):
    files = {}
    for number, text in enumerate(pairs()):
        first, then = text.splitlines()
        files[f"split{number}"] = f"{first}\n# isort: split\n{then}\n"
        files[f"skip{number}"] = f"{first}  # isort: skip\n{then}\n"
    assert set(sorted_by(files, *command).values()) == {True}


def test_suggestion_passes_ruff(child, cached_environment):
    """The lines that lint shows, put into a file as they are."""
    rule = "[[rules]]\nid = 'L1'\nwatch = ['decord']\nneeds = ['torch']\nwhy = 'w'\n"
    child.write("cudaguard.toml", rule)
    child.write("train.py", "from decord import cpu\nfrom torch import nn\n")
    lint = (sys.executable, "-m", "cudaguard", "lint", "--config", "cudaguard.toml")
    done = child.command(*lint, "--format", "json", "train.py", check=False)
    (found,) = json.loads(done.stdout)["findings"]
    python = cached_environment(*PINS)
    child.write("train.py", "\n\n".join([*found["write"], "print(cpu, nn)"]) + "\n")
    before = (child.folder / "train.py").read_text()
    child.command(python, *RUFF, "train.py")
    assert (child.folder / "train.py").read_text() == before
    child.command(*lint, "train.py")


# --- what --fix writes ----------------------------------------------------------------------------

FIX = (sys.executable, "-m", "cudaguard", "lint", "--config", "cudaguard.toml", "--fix")
RULES = (("decord", "torch"), ("cv2", "decord"), ("nvidia.dali", "torch"), ("mine", "cv2"))
LENGTH = "lint.isort.length-sort=true"
FROM_FIRST = "lint.isort.from-first=true"


@pytest.mark.parametrize(
    "command",
    [
        RUFF,
        (*RUFF, "--config", BY_NAME),
        (*RUFF, "--config", LENGTH),
        (*RUFF, "--config", FROM_FIRST),
        ("-m", "isort", "-q"),
        ("-m", "isort", "-q", "--profile", "google"),
        ("-m", "isort", "-q", "--length-sort", "--from-first"),
    ],
    ids=" ".join,
)
def test_sorters_leave_what_fix_has_written(child, cached_environment, command):
    """All orders of four imports; what was right before the fix has no mark, and is not asked."""
    rules = [
        f"[[rules]]\nid = 'L{n}'\nwatch = ['{then}']\nneeds = ['{first}']\nwhy = 'w'\n"
        for n, (then, first) in enumerate(RULES)
    ]
    child.write("cudaguard.toml", "".join(rules))
    child.write("src/mine.py", "")
    written = ("import decord", "from torch import nn  # nn", "import cv2", "import numpy as np",
               "from nvidia.dali import (\n    fn,\n)", "# mine\nimport mine")  # fmt: skip
    for number, order in enumerate(itertools.permutations(written, 4)):
        text = "\n".join(("import os", "", *order, "", "print(os)", ""))
        child.write(f"src/f{number}.py", text)
    wrong = found(child)
    child.command(*FIX, "src")
    assert found(child) == set()
    child.command(cached_environment(*PINS), *command, "src", check=False)
    assert len(wrong) > 100
    assert found(child) & wrong == set()


def found(child):
    """Returns (file, rule) of what is found now."""
    done = child.command(*FIX[:-1], "--format", "json", "src", check=False)
    return {(one["path"], one["rule"]) for one in json.loads(done.stdout)["findings"]}
