"""``cudaguard lint``: findings, formats, exit statuses, notebooks, configuration."""

from __future__ import annotations

import json
import os
import sys

import pytest

from ..documents import valid

LINT = (sys.executable, "-m", "cudaguard", "lint")
RULES = """
    [[rules]]
    id = "LOCAL1"
    watch = ["decord"]
    needs = ["cv2"]
    why = "decord spoils what cv2 needs"
"""


@pytest.fixture
def lint(child):
    """Runs the command with a rule of the user's; returns exit status, stdout, stderr."""
    child.write("cudaguard.toml", RULES)

    def lint(*arguments, config="cudaguard.toml", env=None):
        chosen = ("--config", config) if config else ()
        done = child.command(*LINT, *chosen, *arguments, env=env or {}, check=False)
        return done.returncode, done.stdout, done.stderr

    return lint


def test_finding(lint, child):
    child.write("src/train.py", "import os\n\nimport decord\nimport cv2\n")
    child.write("src/right.py", "import cv2\nimport decord\n")
    status, out, err = lint("src")
    assert status == 1
    assert (
        out
        == """\
src/train.py:3:8: LOCAL1 decord is imported before cv2, which follows in line 4
    3 | import decord
      |        ^^^^^^
    4 | import cv2
      |        --- must come first
    why: decord spoils what cv2 needs
    write: import cv2
           # isort: split
           import decord
    isort and ruff keep this order; with `# isort: split` between the two, by any settings
    run: cudaguard lint --config cudaguard.toml --fix src/train.py
"""
    )
    assert err == "cudaguard lint: 1 finding in 2 files\n"


def test_what_a_sorter_would_undo_is_pinned(lint, child):
    child.write("cudaguard.toml", RULES.replace('["cv2"]', '["torch"]'))
    child.write("train.py", "import decord\nfrom torch import nn, cuda\n")
    _, out, _ = lint("train.py")
    lines = [line.strip() for line in out.splitlines()]
    assert lines[6:9] == ["write: from torch import nn", "# isort: split", "import decord"]
    assert "ruff (I001) would undo this order" in lines[9]


def test_own_module_that_must_come_first_is_pinned(lint, child):
    """Sorters put the user's own modules last."""
    child.write("cudaguard.toml", RULES.replace('["cv2"]', '["alloc"]'))
    child.write("alloc.py", "")
    child.write("train.py", "import decord\nimport alloc\n")
    assert "isort and ruff (I001) would undo this order" in lint("train.py")[1]


def test_comment_silences_one_rule(lint, child):
    child.write("a.py", "import decord  # cudaguard: ignore[LOCAL1]\nimport cv2\n")
    child.write("b.py", "import decord\nimport cv2  # cudaguard: ignore\n")
    assert lint("a.py", "b.py") == (0, "", "cudaguard lint: 0 findings in 2 files\n")
    child.write("c.py", "import decord  # cudaguard: ignore[OTHER]\nimport cv2\n")
    assert lint("c.py")[0] == 1


def test_nothing_is_run_or_imported(lint, child):
    child.write("decord.py", "print('imported')\n")
    child.write("cv2.py", "print('imported')\n")
    child.write("train.py", "print('run')\nimport decord\nimport cv2\nprint('run')\n")
    status, out, _ = lint("train.py")
    assert status == 1
    assert "run" not in out.replace("ruff", "").split()
    assert "imported\n" not in out


def test_json(lint, child):
    child.write("train.py", "import decord, cv2\n")
    status, out, _ = lint("--format", "json", "train.py")
    document = valid("lint", out)
    (found,) = document["findings"]
    assert status == 1
    assert (found["path"], found["line"], found["rule"]) == ("train.py", 1, "LOCAL1")
    assert found["write"] == ["import cv2", "# isort: split", "import decord"]
    assert (found["column"], found["end_column"]) == (8, 14)
    assert found["needed"] == {
        "module": "cv2",
        "cell": 0,
        "line": 1,
        "column": 16,
        "end_column": 19,
    }
    assert (found["fixable"], found["command"]) == (False, "")
    assert "one statement imports both" in found["reason"]
    child.write("train.py", "import cv2, decord\n")
    status, out, _ = lint("--format", "json", "train.py")
    assert (status, valid("lint", out)["findings"]) == (0, [])


def test_github(lint, child):
    child.write("train.py", "\n    \nimport decord, cv2\n")
    status, out, _ = lint("--format", "github", "train.py")
    assert status == 1
    assert out.startswith(
        "::error file=train.py,line=3,col=8,title=cudaguard LOCAL1::LOCAL1 decord"
    )
    assert out.count("\n") == 1


def test_color(lint, child):
    child.write("train.py", "import decord, cv2\n")
    env = {"NO_COLOR": "", "FORCE_COLOR": "1"}
    assert lint("train.py", env=env)[1].startswith("\033[1mtrain.py:1:8:")
    assert "\033" not in lint("--format", "json", "train.py", env=env)[1]
    assert "\033" not in lint("train.py", env={"NO_COLOR": "1", "FORCE_COLOR": "1"})[1]


def test_file_that_cannot_be_parsed(lint, child):
    child.write("bad.py", "import (\n")
    child.write("train.py", "import decord, cv2\n")
    status, out, err = lint("--format", "json", ".")
    document = valid("lint", out)
    assert status == 3
    assert (document["unreadable"], len(document["findings"])) == (1, 1)
    assert "bad.py: line 1: " in err


NOTEBOOK = {
    "nbformat": 4,
    "metadata": {"kernelspec": {"language": "python"}},
    "cells": [
        {"cell_type": "markdown", "source": ["import torch\n"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip list\n", "import decord\n"]},
        {"cell_type": "code", "source": "%%bash\nimport cv2; (\n"},
        {"cell_type": "code", "source": "%%time\nimport cv2\n"},
    ],
}


def test_notebook(lint, child):
    child.write("train.ipynb", json.dumps(NOTEBOOK))
    status, out, _ = lint(".")
    assert status == 1
    assert out.startswith(
        "./train.ipynb:cell 2:3:8: LOCAL1 decord is imported before cv2, which follows in cell 4\n"
    )
    (found,) = valid("lint", lint("--format", "json", ".")[1])["findings"]
    assert (found["cell"], found["line"]) == (2, 3)
    assert (found["needed"]["cell"], found["needed"]["line"]) == (4, 2)
    before = (child.folder / "train.ipynb").read_bytes()
    status, out, _ = lint("--fix", ".")
    assert (status, "--fix leaves this to you: it does not rewrite notebooks" in out) == (1, True)
    assert (child.folder / "train.ipynb").read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"cells": NOTEBOOK["cells"][2:]},
        {"metadata": {"kernelspec": {"language": "R"}}},
        {"cells": [{"cell_type": "code", "source": "import decord, cv2 # cudaguard: ignore"}]},
    ],
)  # fmt: skip
def test_notebook_with_nothing_wrong(lint, child, change):
    child.write("train.ipynb", json.dumps({**NOTEBOOK, **change}))
    assert lint(".")[:2] == (0, "")


def test_notebook_that_is_none(lint, child):
    child.write("train.ipynb", "[]")
    status, out, err = lint("train.ipynb")
    assert (status, out) == (3, "")
    assert "is not a notebook of format 4" in err


# --- which rules ----------------------------------------------------------------------------------

UNSLOTH = "import transformers\nimport unsloth\n"


def test_built_in_rule_about_a_version_that_is_installed(lint, child):
    """Off at run time, as it would import for the program; told of here."""
    child.write("train.py", UNSLOTH)
    assert lint("train.py", config=None)[0] == 0
    child.write("site/unsloth-1.0.dist-info/METADATA", "Name: unsloth\nVersion: 1.0\n")
    env = {"PYTHONPATH": str(child.folder / "site")}
    status, out, _ = lint("train.py", config=None, env=env)
    assert status == 1
    assert "CG041 transformers is imported before unsloth" in out
    assert lint("train.py", config=None, env={**env, "CUDAGUARD_RULES": "-CG041"})[0] == 0


def test_built_in_rule_that_is_switched_on(lint, child):
    """Then it counts wherever the program is to run: pre-commit has environments of its own."""
    child.write("train.py", UNSLOTH)
    assert lint("train.py", config=None, env={"CUDAGUARD_RULES": "+CG041"})[0] == 1
    child.write("on.toml", 'enable = ["CG041"]')
    assert lint("train.py", config="on.toml")[0] == 1
    assert lint("train.py", config=None, env={"CUDAGUARD_CONFIG": "on.toml"})[0] == 1
    assert lint("train.py", config="on.toml", env={"CUDAGUARD_RULES": "-CG041"})[0] == 0


def test_rules_that_ask_for_no_order(lint, child):
    pytest.importorskip("decord", reason="decord has wheels for x86-64 Linux only")
    child.write("train.py", "import decord\nimport cv2\n")
    status, out, err = lint("-v", "train.py", config=None)
    assert (status, out) == (0, "")
    assert "train.py:1: decord: CG001 needs no order here: the guard repairs it" in err
    assert "CG001" not in lint("train.py", config=None)[2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "required: PATH"),
        (["no-such-folder"], "there is no such file or folder"),
        (["--config", "absent.toml", "."], "absent.toml: cannot read"),
        (["--config", "bad.toml", "."], "the key 'why' is missing"),
        (["--fix", "--diff", "."], "not allowed with argument"),
        (["--diff", "--format", "json", "."], "--diff writes a diff, and takes no --format json"),
    ],
)
def test_wrong_usage(child, arguments, expected):
    child.write("bad.toml", "[[rules]]\nid = 'L1'\nwatch = ['a']\n")
    done = child.command(*LINT, *arguments, check=False)
    assert done.returncode == 2
    assert expected in done.stderr
    assert (expected in done.stdout) == ("json" in arguments)  # then it is a document as well


def test_what_is_no_file_is_left_out(lint, child):
    """A pipe would be read for ever; Emacs marks what is edited by a link into nowhere."""
    child.write("src/train.py", "import cv2\nimport decord\n")
    os.mkfifo(child.folder / "src" / "pipe.py")
    (child.folder / "src" / ".#train.py").symlink_to("somebody@somewhere.1")
    status, out, err = lint("src")
    assert (status, out) == (0, "")
    assert "0 findings in 1 file" in err


def test_null_byte_is_told_in_words(lint, child):
    child.write("train.py", "import os\0\n")
    status, _, err = lint("train.py")
    assert status == 3
    assert "null bytes" in err
    assert "None" not in err


def test_rule_that_bisect_has_written(child):
    """One command's output is the other's input."""
    child.write("first.py", "")
    child.write("last.py", "import sys\nif 'first' in sys.modules: sys.exit(3)\n")
    child.write("train.py", "import first\nimport last\n")
    bisect = (sys.executable, "-m", "cudaguard", "bisect")
    child.command(*bisect, "-o", "found.toml", "train.py", check=False)
    done = child.command(*LINT, "--config", "found.toml", "train.py", check=False)
    assert done.returncode == 1
    assert "first is imported before last" in done.stdout
