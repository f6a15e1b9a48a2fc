"""The release as its users get it: sdist and wheel, uvx, the pre-commit hook."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import cudaguard

from ..kept import PIP, run_python

pytestmark = pytest.mark.incidents

TOOLS = ("build==1.6.1", "twine==7.0.0", "uv==0.13.9", "pre-commit==4.7.0")
# Of the README's commands: what stands for the programs of its readers.
STANDS_FOR = {"train.py": "healthy.py", "torchrun ...": "healthy.py", "COMMAND": "healthy.py"}
HEALTHY = "import json\nprint('done')\n"


@pytest.fixture(scope="module")
def tools(kept):
    """Returns the path of a tool of `TOOLS`."""
    folder = kept.environment(*TOOLS).parent
    return lambda name: folder / name


@pytest.fixture(scope="module")
def release(tools, root, tmp_path_factory):
    """The sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("release")
    source = folder / "source"
    skip = shutil.ignore_patterns(".git", "__pycache__", "build", "dist", ".*_cache", ".venv")
    shutil.copytree(root, source, ignore=skip)
    run_python(tools("python"), "-m", "build", "-o", folder / "dist", source)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


def test_twine_finds_nothing_wrong(release, tools, child):
    done = child.command(tools("twine"), "check", "--strict", *release)
    assert done.stdout.count("PASSED") == 2


def test_what_is_in_it(release):
    sdist, wheel = release
    name = f"cudaguard-{cudaguard.__version__}"
    with tarfile.open(sdist) as file:
        names = set(file.getnames())
    for one in ("README.md", "CHANGELOG.md", "LICENSE", "docs/index.md", "tests/conftest.py",
                "examples/README.md", ".pre-commit-hooks.yaml"):  # fmt: skip
        assert f"{name}/{one}" in names
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        metadata = file.read(f"{name}.dist-info/METADATA").decode()
    tops = {one.partition("/")[0] for one in names}
    own = {"cudaguard", "cudaguard.pth", "_cudaguard_boot.py"}
    assert tops == {*own, f"{name}.dist-info", f"{name}.data"}
    pages = {one for one in names if one.startswith(f"{name}.data/")}
    assert f"{name}.data/data/share/doc/cudaguard/howto/fork.md" in pages
    assert {Path(page).suffix for page in pages} == {".md"}
    assert "cudaguard/py.typed" in names
    assert "cudaguard/tools/bisect/_bisect/runner.py" in names
    schemas = {Path(one).stem for one in names if "/tools/schema/" in one}
    assert {"doctor", "run", "bisect", "lint", "rules", "error"} <= schemas
    assert f"\nVersion: {cudaguard.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


def test_pages_that_findings_name_are_installed(release, tmp_path):
    run_python(sys.executable, "-m", "venv", "--without-pip", tmp_path / "own")
    prefix, target = tmp_path / "own", tmp_path / "target"
    run_python(sys.executable, *PIP, "--python", prefix, "install", release[1])
    run_python(sys.executable, *PIP, "install", "--no-deps", "--target", target, release[1])
    for python, where, path in (
        (prefix / "bin" / "python", prefix, ""),
        (sys.executable, target, str(target)),
    ):
        code = "import cudaguard; print(*cudaguard.explain('CG812').links)"
        output = tmp_path / "page"
        with output.open("w") as file:
            run_python(python, "-P", "-c", code, stdout=file, env={"PYTHONPATH": path})
        page = Path(output.read_text().strip())
        assert page.is_relative_to(where)
        assert page.read_text().startswith("# ")


def commands_of(text):
    """The commands of the README that start with ours, or lead into it."""
    for found in re.findall(r"`((?:[^`]*\| )?cudaguard [a-z][^`]*)`", text.replace("\\|", "|")):
        for what, stand in STANDS_FOR.items():
            found = found.replace(what, stand)
        yield found


def test_commands_of_the_readme_work_from_the_wheel(root, release, tmp_path, child):
    python = tmp_path / "venv" / "bin" / "python"
    run_python(sys.executable, "-m", "venv", tmp_path / "venv")
    run_python(python, *PIP, "install", f"{release[1]}[demo]")
    child.write("healthy.py", HEALTHY)
    child.write("predict.py", HEALTHY)
    readme = (root / "README.md").read_text(encoding="utf-8")
    commands = list(dict.fromkeys(commands_of(readme)))
    assert len(commands) >= 5
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    for command in [*commands, "cudaguard demo", "CUDAGUARD=fix python healthy.py"]:
        done = child.command("bash", "-c", command, env={"PATH": path}, check=False, timeout=300)
        # 1: a fault was found (doctor, with the pins of the demo), or nothing is to be explained.
        assert done.returncode in (0, 1), (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stdout + done.stderr, command


def test_uvx_runs_it(release, tools, child, tmp_path):
    env = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON": sys.executable}
    command = (tools("uvx"), "--from", release[1], "cudaguard", "doctor", "--only", "CG909")
    done = child.command(*command, env=env, timeout=600)
    assert "no faults found in 1 check" in done.stdout


def test_pre_commit_hook(root, tools, child, tmp_path):
    """From the repository itself, as pre-commit takes it."""
    hooks = tmp_path / "hooks"
    skip = shutil.ignore_patterns(".git", "__pycache__", "tests", "docs", ".*_cache", ".venv")
    shutil.copytree(root, hooks, ignore=skip)
    project = tmp_path / "project"
    project.mkdir()
    (project / "cudaguard.toml").write_text(
        '[[rules]]\nid = "LOCAL1"\nwatch = ["decord"]\nneeds = ["torch"]\nwhy = "it must"\n'
    )
    (project / "train.py").write_text("import decord\nimport torch\n")
    (project / "good.py").write_text("import torch\n\nimport decord\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for folder in (hooks, project):
        child.command("git", "-C", folder, "init", "-q")
        child.command("git", "-C", folder, "add", "-A")
        child.command("git", "-C", folder, *identity, "commit", "-q", "-m", "all")
    revision = child.command("git", "-C", hooks, "rev-parse", "HEAD").stdout.strip()
    (project / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {hooks}\n    rev: {revision}\n    hooks:\n      - id: cudaguard-lint\n"
        "        args: [--config, cudaguard.toml]\n"
    )
    env = {"PRE_COMMIT_HOME": str(tmp_path / "home")}
    run = ("bash", "-c", 'cd "$1" && shift && exec "$@"', "-", project, tools("pre-commit"), "run")
    found = child.command(*run, "--files", "train.py", env=env, check=False, timeout=600)
    assert found.returncode == 1
    assert "LOCAL1 decord is imported before torch" in found.stdout
    quiet = child.command(*run, "--files", "good.py", env=env, timeout=600)
    assert "Passed" in quiet.stdout
