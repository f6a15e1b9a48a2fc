"""Standard streams that are closed, full or no longer read, odd file names, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from ..conftest import clean_environment

CUDAGUARD = (sys.executable, "-m", "cudaguard")
RULE = '[[rules]]\nid = "LOCAL-A"\nwatch = ["json"]\nneeds = ["re"]\nwhy = "x"\n'
LINT = ("lint", "--config", "own.toml", "late.py")
# Each with its exit status when all is well.
WRITING = [
    (("doctor", "--only", "CG909"), 0),
    (LINT, 1),
    (("rules", "list"), 0),
    (("rules", "check", "own.toml"), 0),
    (("explain", "CG001"), 0),
    (("bisect", "fine.py"), 0),
]


@pytest.fixture
def scene(child):
    """A folder with something for each command."""
    child.write("own.toml", RULE)
    child.write("late.py", "import json\nimport re\n")
    child.write("fine.py", "")
    return child


def shell(scene, arguments, redirection, **variables):
    """Run a command with a shell's redirection; return (status, stdout, stderr)."""
    line = f'exec "$@" {redirection}'
    command = ("/bin/sh", "-c", line, "sh", *CUDAGUARD, *arguments)
    done = scene.command(*command, env=variables, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("buffered", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "not"])
def test_reader_that_has_gone_changes_nothing(scene, buffered):
    for arguments, status in WRITING:
        told, end = os.pipe()
        os.close(told)
        done = subprocess.run(
            [*CUDAGUARD, *arguments], cwd=scene.folder, env=clean_environment(**buffered),
            stdout=end, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
        os.close(end)
        assert done.returncode == status, arguments
        assert "Error" not in done.stderr
        assert "Broken pipe" not in done.stderr


def test_full_disk_is_told_in_one_line(scene):
    for arguments, _ in WRITING:
        status, _, err = shell(scene, arguments, ">/dev/full")
        *_, last = err.splitlines()
        assert last == f"cudaguard {arguments[0]}: [Errno 28] No space left on device"
        assert status == 3
        assert "Traceback" not in err


@pytest.mark.parametrize(("arguments", "status"), [WRITING[1], WRITING[4]], ids=str)
def test_streams_that_are_closed(scene, arguments, status):
    told = shell(scene, arguments, "")[1]
    for redirection in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        found, out, err = shell(scene, arguments, redirection)
        assert found == status, (redirection, err)
        assert "Traceback" not in err
        if redirection in ("<&-", "2>&-"):
            assert out == told  # and no note got into the document


def test_notes_that_cannot_be_written_change_nothing(scene):
    status, out, _ = shell(scene, ("bisect", "--format", "json", "fine.py"), "2>/dev/full")
    assert (status, json.loads(out)["verdict"]) == (0, "works")
    status, out, _ = shell(scene, ("bisect", "--format", "json", "fine.py"), "2>&-")
    assert (status, json.loads(out)["verdict"]) == (0, "works")


def test_no_input(scene):
    assert shell(scene, ("explain", "-"), "<&-")[0] == 1


def test_message_in_no_encoding(child):
    done = subprocess.run(
        [*CUDAGUARD, "explain", "-"], input=b"\xff\xfe undefined symbol: _ZN3c10", check=True,
        stdout=subprocess.PIPE, env=clean_environment(),
    )  # fmt: skip
    assert done.stdout


@pytest.mark.parametrize(
    "variables", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_file_names_in_no_encoding(scene, variables):
    name = os.fsdecode(b"b\xffd.py")
    (scene.folder / name).write_text("import json\nimport re\nimport fails_here\n")
    (scene.folder / "fails_here.py").write_text("1 / 0\n")
    status, out, _ = shell(scene, (*LINT[:-1], name), "", **variables)
    assert (status, out.splitlines()[0].partition(":")[0]) == (1, r"b\udcffd.py")
    for outputs in ((), ("-o", "a.toml", "-o", "a.json")):
        status, out, err = shell(scene, ("bisect", *outputs, name), "", **variables)
        assert (status, "Traceback" in err) == (1, False)
        assert out.startswith(r"b\udcffd.py fails with ZeroDivisionError")
    assert json.loads((scene.folder / "a.json").read_text())["failing"] == ["fails_here"]
    status, _, err = shell(scene, ("run", "--report", "r.json", name), "", **variables)
    assert (status, "cudaguard" in err) == (1, False)
    assert json.loads((scene.folder / "r.json").read_text())["program"] == [name]


@pytest.mark.parametrize(
    ("arguments", "after"),
    [(("bisect", "slow.py"), 0.0), (("bisect", "slow.py"), 0.3),
     (("doctor", "--deep", "--only", "CG912"), 0.05)],
    ids=str,
)  # fmt: skip
def test_interrupted_while_a_child_runs(child, arguments, after):
    slow = "import time; open('begun', 'w').close(); time.sleep(60)"
    child.write("slow.py", slow)
    child.write("torch/__init__.py", slow)
    env = {"PYTHONPATH": str(child.folder)}  # doctor's children leave the working directory out
    begun = child.folder / "begun"
    done = child.signaled(
        *CUDAGUARD, *arguments, number=signal.SIGINT, env=env, whole_group=True,
        once=lambda _: begun.exists() and not time.sleep(after),
    )  # fmt: skip
    said = f"cudaguard {arguments[0]}: interrupted\n"
    assert (done.returncode, done.stderr) == (130, said)


def test_interrupted_before_it_has_begun(child):
    code = """
        import argparse, sys
        from cudaguard.tools.main import main
        def interrupted(*_, **__): raise KeyboardInterrupt
        argparse.ArgumentParser.parse_known_args = interrupted
        sys.exit(main(["lint", "."]))
    """
    done = child.python(code, check=False)
    assert (done.returncode, done.stderr) == (130, "cudaguard lint: interrupted\n")
