"""``cudaguard doctor``: formats, exit statuses, selection, streams, and broken surroundings."""

from __future__ import annotations

import json
import subprocess

import pytest

from cudaguard import explain
from cudaguard.tools.doctor.checks import all_checks

from ..conftest import clean_environment
from .doctor import DOCTOR
from .doctor import planted as planted


def test_json_is_one_document_and_text_has_the_same_checks(planted):
    status, out, err = planted.run("--format", "json")
    document = json.loads(out)
    assert next(iter(document)) == "schema"
    assert err == ""
    text_status, text, err = planted.run("--verbose")
    assert (text_status, err) == (status, "")
    for check in document["checks"]:
        assert f"{check['status']:<7}  {check['id']}  {check['title']}" in text
    assert document["environment"]["python"] in text


def test_process_imports_nothing_foreign(planted, child):
    """The names stand on the path, and would be noticed."""
    for name in ("torch", "numpy", "wrapt", "pynvml", "decord"):
        planted.write(f"{name}/__init__.py", f"print('{name} was imported')\n")
        planted.distribution(name, files=(f"{name}/__init__.py",))
    code = """
        import sys
        from cudaguard.tools.main import main
        main(["doctor", "--format", "json", "-o", "out.json"])
        foreign = {"torch", "numpy", "wrapt", "pynvml", "decord", "cv2", "pip", "setuptools"}
        print(sorted(foreign & set(sys.modules)), len(sys.modules) > 50)
    """
    assert child.python(code, env={"PYTHONPATH": str(planted.folder)}).stdout == "[] True\n"


def test_selection(planted):
    _, checks = planted.checks("--only", "CG901", "--only", "CG905")
    assert list(checks) == ["CG901", "CG905"]
    _, checks = planted.checks("--skip", "CG901")
    assert "CG901" not in checks
    assert "CG905" in checks


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "CG999"), "there is no check 'CG999'; expected one of CG901, "),
        (("--only", "cg001"), "CG001 is not a check\n  run: cudaguard explain CG001\n"),
        (("--skip", "x"), "there is no check 'x'"),
        (("--timeout", "0"), "--timeout: expected a number of seconds above 0"),
        (("--fail-on", "ok"), "--fail-on: got 'ok', expected one of info"),
    ],
)
def test_wrong_usage(planted, arguments, said):
    status, out, err = planted.run(*arguments)
    assert (status, out) == (2, "")
    assert said in err


def test_each_check_is_known_to_explain_and_to_the_document(root):
    document = (root / "docs" / "reference" / "commands" / "doctor.md").read_text(encoding="utf-8")
    for id, check in all_checks().items():
        assert f"| {id} | {check.title} | {check.about}" in document
        finding = explain(id)
        assert check.title in finding.what
        assert finding.command == f"cudaguard doctor --only {id} -v"


@pytest.mark.parametrize(
    ("level", "status"), [("info", 1), ("warning", 1), ("error", 0), ("never", 0), (None, 0)]
)
@pytest.mark.parametrize("format", ["text", "json"])
def test_gate_is_the_same_in_both_formats(planted, level, status, format):
    """A distribution without a version is a warning; a file that nobody reads is worth a note."""
    gate = () if level is None else ("--fail-on", level)
    arguments = ("--only", "CG905", "--only", "CG909", "--format", format, *gate)
    assert planted.run(*arguments)[0] == 0
    planted.child.write("cudaguard.toml", "")
    assert planted.run(*arguments)[0] == (level == "info")
    planted.write("half-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: half\n")
    assert planted.run(*arguments)[0] == status


def test_a_check_that_fails_is_broken_and_the_others_go_on(planted, child):
    """A finding that cannot be made: our own fault, planted."""
    child.write(
        "sitecustomize.py",
        """
        import cudaguard.system.packages as d
        def fail(*_, **__): raise ZeroDivisionError("planted")
        d.listed_files = fail
        """,
    )
    status, out, err = planted.run("--format", "json", env={"PYTHONPATH": str(child.folder)})
    checks = {check["id"]: check for check in json.loads(out)["checks"]}
    assert status == 3
    assert checks["CG905"]["status"] == "broken"
    assert checks["CG905"]["reason"] == "the check itself failed: ZeroDivisionError: planted"
    assert checks["CG905"]["findings"] == []
    assert checks["CG901"]["status"] != "broken"
    assert "CG905 itself has failed" in err
    assert "ZeroDivisionError: planted" in err
    text = planted.run("--fail-on", "never", env={"PYTHONPATH": str(child.folder)})
    assert text[0] == 3
    assert "A broken check is a fault of cudaguard" in text[1]


def test_reader_that_goes_away_is_no_failure(child):
    """As `| head` does."""
    doctor = subprocess.Popen(
        [*DOCTOR, "--format", "json"], cwd=child.folder, env=clean_environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    doctor.stdout.close()
    err = doctor.stderr.read()
    doctor.stderr.close()
    assert (doctor.wait(timeout=60), err) == (0, "")
