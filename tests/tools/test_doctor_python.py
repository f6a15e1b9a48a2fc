"""``cudaguard doctor --python``: environments without cudaguard, and what is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudaguard.system.lending import HOME

from ..conftest import clean_environment, make_environment
from ..documents import valid
from .doctor import DOCTOR
from .doctor import planted as planted

METADATA = "Metadata-Version: 2.1\nName: {0}\nVersion: {1}\n"
STUB = """#!/bin/sh
printf %s "{}"
exit {}
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The folder of an environment that has decord 0.6.0, as files tell it, and no more."""
    folder = tmp_path_factory.mktemp("other") / "venv"
    make_environment(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "decord").mkdir()
    (packages / "decord/__init__.py").write_text("")
    (packages / "torch").mkdir()
    (packages / "torch/__init__.py").write_text(
        "import sys; assert sys.prefix != sys.base_prefix\n"
    )
    info = packages / "decord-0.6.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format("decord", "0.6.0"))
    return folder


def run(child, *arguments, env=None):
    """Run the doctor; returns its status, standard output, and standard error."""
    done = child.command(*DOCTOR, *map(str, arguments), env=env, check=False)
    return done.returncode, done.stdout, done.stderr


def report(child, *arguments, env=None):
    """Run the doctor; returns its document, held against the schema."""
    status, out, err = run(child, *arguments, "--format", "json", env=env)
    assert (status, err) in ((0, ""), (1, ""))
    return valid("doctor", out)


def findings_of(document, id):
    (check,) = (check for check in document["checks"] if check["id"] == id)
    return check["findings"]


@pytest.mark.parametrize("installer", ["pip", "uv"])
@pytest.mark.parametrize("place", ["", "bin/python"])
def test_environment_without_cudaguard(child, other, place, installer):
    """Every command that needs the guard there is preceded by its installation."""
    tools = child.write(f"bin/{installer}", "#!/bin/sh\n").parent
    (tools / installer).chmod(0o755)
    document = report(child, "--python", other / place, env={"PATH": str(tools)})
    assert document["environment"]["interpreter"] == str(other / "bin/python")
    assert {check["status"] for check in document["checks"]} <= {"ok", "warning", "skipped"}
    (known,) = (one for one in findings_of(document, "CG901") if one["rule"] == "CG001")
    assert known["what"].startswith("decord 0.6.0: ")
    (note,) = findings_of(document, "CG909")
    assert note["what"] == f"cudaguard is not installed in {other}."
    assert note["severity"] == "info"
    python = f"{other}/bin/python"
    pip = f"{python} -m pip install cudaguard"
    install = {"uv": f"uv pip install --python {python} cudaguard", "pip": pip}[installer]
    assert note["command"] == install
    assert known["command"] == f"{install} && export CUDAGUARD=fix"


def test_own_packages_are_not_seen_from_there(child, other):
    document = report(child, "--python", other, "--only", "CG905")
    (check,) = (check for check in document["checks"] if check["id"] == "CG905")
    assert check["reason"] == "distributions: 1"


def test_requirements_of_cudaguard_are_for_cudaguard_alone(child, other):
    """A package that needs packaging fails there, also in doctor's children."""
    (file,) = other.glob("lib/python*/site-packages/torch/__init__.py")
    text = file.read_text()
    file.write_text("import packaging")
    try:
        document = report(child, "--python", other, "--only", "CG912", "--deep")
    finally:
        file.write_text(text)
    (found,) = findings_of(document, "CG912")
    assert "ModuleNotFoundError: No module named 'packaging'" in found["what"]


def test_children_are_of_that_environment(child, other):
    """Those that ask NVML have this cudaguard."""
    document = report(child, "--python", other, "--deep")
    ended = {check["id"]: check["status"] for check in document["checks"]}
    assert ended["CG912"] == "ok"
    assert ended["CG913"] != "broken"


def test_variable_is_the_users_and_its_guard_is_missing(child, other):
    document = report(child, "--python", other, env={"CUDAGUARD": "fix"})
    (note,) = findings_of(document, "CG909")
    assert note["severity"] == "warning"
    (known,) = (one for one in findings_of(document, "CG901") if one["rule"] == "CG001")
    assert known["severity"] == "warning", "the guard is not there to repair it"


def test_cudaguard_that_is_there_gives_way(child, other, tmp_path):
    """It is of another release, and has been imported by a start-up file."""
    theirs = tmp_path / "theirs"
    (theirs / "cudaguard").mkdir(parents=True)
    (theirs / "cudaguard/__init__.py").write_text("__version__ = '0.0.1'\n")
    (theirs / "sitecustomize.py").write_text("import cudaguard\n")
    info = theirs / "cudaguard-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format("cudaguard", "0.0.1"))
    env = {"PYTHONPATH": str(theirs)}
    # Ours is found without PYTHONPATH, as by a tool that is installed for itself.
    code = (
        f"import sys; sys.path.insert(0, {HOME!r}); "
        "from cudaguard.tools.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, "doctor", "--python", other, "--format", "json"],
        env={**clean_environment(), **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    document = valid("doctor", done.stdout)
    assert document["version"] != "0.0.1"
    assert findings_of(document, "CG909") == []


def stub(folder, said, status=0):
    file = folder / "python"
    file.write_text(STUB.format(said, status))
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: folder / "absent", "absent is neither an interpreter nor the folder of"),
        (lambda folder: "", "--python: '' is neither"),
        (lambda folder: folder, "nor the folder of an environment.\n  run: ls -l "),
        (lambda folder: stub(folder, "cudaguard 3.8"), "is Python 3.8. cudaguard needs 3.9"),
        (
            lambda folder: stub(folder, "hello"),
            "is not a working Python interpreter: hello.\n  run: ",
        ),
        (lambda folder: stub(folder, "cudaguard 3.12", 3), "not a working Python interpreter"),
        (lambda folder: os.fspath(Path(__file__)), "is neither an interpreter nor"),
    ],
)
def test_what_is_no_environment(child, tmp_path, make, said):
    folder = tmp_path / "some"
    folder.mkdir()
    status, out, err = run(child, "--python", make(folder))
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_name_on_path(child, other):
    path = f"{other}/bin{os.pathsep}{os.environ['PATH']}"
    document = report(child, "--python", "python", "--only", "CG905", env={"PATH": path})
    assert document["environment"]["interpreter"] == str(other / "bin/python")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_other_releases_of_python(child, tmp_path, version):
    home = Path("~/.pyenv/versions").expanduser()
    found = sorted(home.glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"there is no Python {version} among those of pyenv")
    make_environment(tmp_path / "venv", python=str(found[-1]), with_pip=False)
    document = report(child, "--python", tmp_path / "venv", "--deep")
    assert document["environment"]["python"].startswith(f"{version}.")
    assert not document["summary"]["broken"]
    assert not document["summary"]["fail"]
