"""The package in a zip file: its commands work, and what they unpack is removed."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import sys
import tempfile
import zipapp
import zipfile
from pathlib import Path

import pytest

import cudaguard
from cudaguard.tools.common import on_disk

from ..kept import make_environment

MAIN = "import sys\nfrom cudaguard.tools.main import main\nsys.exit(main())\n"


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    """A zip application of the package as it is here."""
    folder = tmp_path_factory.mktemp("zip")
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(cudaguard.__file__).parent, folder / "app" / "cudaguard", ignore=skip)
    packaging = Path(importlib.util.find_spec("packaging").origin).parent
    shutil.copytree(packaging, folder / "app" / "packaging", ignore=skip)
    (folder / "app" / "__main__.py").write_text(MAIN, encoding="utf-8")
    zipapp.create_archive(folder / "app", folder / "cudaguard.pyz")
    return folder / "cudaguard.pyz"


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """The interpreter of an environment in which nothing is installed."""
    return make_environment(tmp_path_factory.mktemp("bare") / "venv", with_pip=False)


@pytest.fixture
def run(application, child, tmp_path):
    """Runs a command of the application; returns (status, output), and looks at what it leaves."""
    (tmp_path / "temporary").mkdir()

    def run(*arguments, python=sys.executable):
        env = {"TMPDIR": str(tmp_path / "temporary")}
        done = child.command(python, application, *arguments, env=env, check=False)
        assert not list((tmp_path / "temporary").iterdir())
        return done.returncode, done.stdout + done.stderr

    return run


def test_what_lies_on_the_disk_is_not_copied(tmp_path):
    assert on_disk(__file__) == __file__
    assert on_disk(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize("name", ["a.zip/b/none.txt", "none/at/all.txt"])
def test_what_is_nowhere_is_an_error(tmp_path, monkeypatch, name):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("b/c.txt", "text")
    with pytest.raises(FileNotFoundError, match="there is no"):
        on_disk(str(tmp_path / name))


def test_file_and_folder_are_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("b/c.txt", "text")
        file.writestr("bc.txt", "other")
    assert Path(on_disk(str(tmp_path / "a.zip" / "b" / "c.txt"))).read_text() == "text"
    assert [one.name for one in Path(on_disk(str(tmp_path / "a.zip" / "b"))).iterdir()] == ["c.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--version",), 0, f"cudaguard {cudaguard.__version__}"),
        (("doctor", "--only", "CG905"), 0, "no faults found in 1 check"),
        (("explain", "CG001"), 0, "[CG001]"),
        (("rules", "list"), 0, "CG001"),
        (("rules", "coverage"), 0, "prevented"),
        (("rules", "test", "CG008"), 3, "CG008"),
        (("bisect", "--imports", "json,decimal"), 0, "nothing to look for"),
        (("check-extension", "no-such-distribution"), 2, "no-such-distribution"),
        (("run", "-c", "pass"), 0, ""),
    ],
)
def test_command(run, arguments, status, said):
    found, output = run(*arguments)
    assert found == status, output
    assert said in output
    assert "Traceback" not in output


WHERE = "import sys, cudaguard; print(cudaguard.status().mode, cudaguard.__file__)"


@pytest.mark.slow
def test_program_and_its_children_are_guarded_from_the_archive(
    run, child, application, bare_python
):
    inside = f"fix {application}"
    child.write("where.py", WHERE)
    child.write(
        "parent.py", f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {WHERE!r}])\n"
    )
    other = (str(bare_python), "where.py")  # as for a Python of another environment
    for program in (("where.py",), ("-c", WHERE), ("--exec", "where.py"), ("parent.py",), other):
        status, output = run("run", *program, python=bare_python)
        assert (status, inside in output) == (0, True), (program, output)


@pytest.mark.slow
def test_conditions_of_rules_are_asked_where_packaging_is_not_installed(run, child, bare_python):
    child.write("decord.py", "")
    child.write("decord-0.6.0.dist-info/METADATA", "Name: decord\nVersion: 0.6.0\n")
    child.write(
        "where.py",
        """\
        import decord, sys, cudaguard
        print([finding.id for finding in cudaguard.status().findings])
        print([name for name in sys.modules if name.startswith("packaging")])
        """,
    )
    status, output = run("run", "where.py", python=bare_python)
    assert (status, output) == (0, "[]\n[]\n")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the report is Linux's")
def test_report_and_trace_are_written(run, child):
    child.write("crash.py", "import ctypes\nctypes.string_at(0)\n")
    status, output = run("run", "--report", "crash.json", "crash.py")
    assert status == -signal.SIGSEGV
    assert "SIGSEGV" in output
    assert (child.folder / "crash.json").is_file()
    status, _ = run("trace", "-o", "trace.json", "-c", "import json")
    assert status == 0
    assert "Native libraries" in run("trace", "--show", "trace.json")[1]
