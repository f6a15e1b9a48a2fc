"""``cudaguard lint``: findings, formats, exit statuses, configuration."""

from __future__ import annotations

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
    child.write("src/silenced.py", "import decord  # cudaguard: ignore[LOCAL1]\nimport cv2\n")
    status, out, err = lint("src")
    assert status == 1
    assert (
        out
        == """\
src/train.py:3: LOCAL1 decord is imported before cv2, which follows on line 4
    because: decord spoils what cv2 needs
    fix: import cv2
         # isort: split
         import decord
    more: cudaguard imports cv2 first
"""
    )
    assert err == "cudaguard lint: 1 finding in 3 files\n"
    status, out, err = lint("-v", "src/right.py")
    assert (status, "LOCAL1" in out, err) == (0, True, "cudaguard lint: 0 findings in 1 file\n")


def test_nothing_is_run_or_imported(lint, child):
    for name in ("decord", "cv2"):
        child.write(f"{name}.py", f"open('{name}.ran', 'w')\n")
    child.write("train.py", "open('train.ran', 'w')\nimport decord\nimport cv2\n")
    assert lint("train.py")[0] == 1
    assert list(child.folder.glob("*.ran")) == []


def test_json_and_a_file_that_cannot_be_parsed(lint, child):
    child.write("bad.py", "import (\n")
    child.write("train.py", "import decord, cv2\n")
    status, out, err = lint("--format", "json", ".")
    document = valid("lint", out)
    (found,) = document["findings"]
    assert (status, document["files"], document["unreadable"]) == (3, 2, 1)
    assert "bad.py: cannot parse line 1: " in err
    assert (found["path"], found["line"], found["rule"]) == ("./train.py", 1, "LOCAL1")
    assert found["write"] == ["import cv2", "# isort: split", "import decord"]
    assert found["needed"] == {"module": "cv2", "path": "./train.py", "line": 1}
    assert found["guard"] == "imports"


# --- which rules ----------------------------------------------------------------------------------

UNSLOTH = "import transformers\nimport unsloth\n"


def test_package_that_is_named_by_its_folder_alone(lint, child):
    child.write("decord/__init__.py", "")
    child.write("decord/use.py", "from . import video\nimport cv2\n")
    assert "use.py:1: LOCAL1 decord is imported before cv2" in lint("decord")[1]
    child.write("decord/use.py", "import cv2\nfrom . import video\n")
    assert lint("decord")[0] == 0


@pytest.mark.parametrize(
    ("code", "status"), [("rf'\\{os.sep}\\}}' '\\d'", 0), ("f'{os.sep'", 3), ("'\\d", 3)]
)
def test_escapes_are_no_mistake_and_nothing_is_said_of_them(lint, child, code, status):
    for imports in ("import os", "import os, cv2, decord"):  # without a tree, and with one
        child.write("train.py", f"{imports}\nprint({code})\n")
        done = lint("train.py", env={"PYTHONWARNINGS": "always"})
        assert (done[0], "Warning" in done[2]) == (status, False)


def test_modules_of_the_project_are_followed(lint, child):
    """What the guard would do: an opt-in order is kept where nothing in between matters."""
    child.write("src/app/__init__.py", "")
    child.write("src/app/engine.py", "import transformers\n")
    child.write("src/app/model.py", "import unsloth\n")
    child.write("src/app/settings.py", "import os\nos.environ['X'] = '1'\n")
    child.write("train.py", "from app import engine, model\n")
    child.write("tune.py", "from app import engine, settings, model\n")
    child.write("later.py", "import trl\ndef work():\n    import unsloth\n")
    status, out, _ = lint("--format", "json", ".", config=None)
    found = {(one["path"], one["needed"]["path"]): one for one in valid("lint", out)["findings"]}
    assert status == 1
    kept = found["./src/app/engine.py", "./src/app/model.py"]
    assert (kept["line"], kept["rule"], kept["guard"]) == (1, "CG041", "imports")
    assert kept["what"].endswith("before unsloth, which follows at ./src/app/model.py:1")
    assert found["./later.py", "./later.py"]["guard"] == "warns"
    _, out, _ = lint("--format", "json", "tune.py", "src", config=None)
    assert [one["guard"] for one in valid("lint", out)["findings"]] == ["warns"]
    _, out, _ = lint("later.py", config=None)
    assert "more: cudaguard only warns" in out


VERSIONS = """
[[rules]]
id = "LOCAL2"
watch = ["decord"]
needs = ["cv2"]
dist = ["decord<0.7"]
why = "old decord spoils what cv2 needs"
"""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements.txt", "numpy\ndecord == 0.6.0\n"),
        ("requirements-gpu.txt", "decord[video]==0.6.0 ; python_version > '3'\n"),
        ("pyproject.toml", "[project]\ndependencies = ['decord==0.6.0']\n"),
    ],
)
def test_versions_are_those_of_the_project(lint, child, file, text):
    """Nothing need be installed here."""
    child.write("train.py", "import decord\nimport cv2\n")
    child.write("cudaguard.toml", VERSIONS)
    assert lint("train.py")[0] == 1
    child.write(file, text)
    assert lint(".")[0] == 1
    child.write(file, text.replace("0.6.0", "0.7.1"))
    assert lint(".")[0] == lint("train.py")[0] == 0


def test_built_in_rule_is_switched_off(lint, child):
    """Off at run time, as it would import for the program; told of here."""
    child.write("train.py", UNSLOTH)
    status, out, _ = lint("train.py", config=None)
    assert status == 1
    assert "CG041 transformers is imported before unsloth" in out
    assert lint("train.py", config=None, env={"CUDAGUARD_RULES": "-CG041"})[0] == 0


def test_built_in_rule_that_is_switched_on(lint, child):
    """Then it counts wherever the program is to run: pre-commit has environments of its own."""
    child.write("train.py", UNSLOTH)
    assert lint("train.py", config=None, env={"CUDAGUARD_RULES": "+CG041"})[0] == 1
    child.write("on.toml", 'enable = ["CG041"]')
    assert lint("train.py", config="on.toml")[0] == 1
    assert lint("train.py", config=None, env={"CUDAGUARD_CONFIG": "on.toml"})[0] == 1
    assert lint("train.py", config="on.toml", env={"CUDAGUARD_RULES": "-CG041"})[0] == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "required: PATH"),
        (["no-such-folder"], "there is no such file or folder"),
        (["--config", "absent.toml", "."], "absent.toml: cannot read the configuration file"),
        (["--config", "bad.toml", "."], "the key 'why' is missing"),
    ],
)
def test_wrong_usage(child, arguments, expected):
    child.write("bad.toml", "[[rules]]\nid = 'L1'\nwatch = ['a']\n")
    done = child.command(*LINT, *arguments, check=False)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stdout == ""


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
