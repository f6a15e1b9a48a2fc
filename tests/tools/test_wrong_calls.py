"""What a command says of a call that it cannot follow: what was meant, and the same in JSON."""

from __future__ import annotations

import shlex

import pytest

from cudaguard.tools.main import COMMANDS, MODULES, asks_for_json, main

from ..documents import valid


@pytest.fixture
def cudaguard(tmp_path, monkeypatch, capsys):
    """Runs a command line in this process; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def cudaguard(line):
        status = main(shlex.split(line))
        return (status, *capsys.readouterr())

    return cudaguard


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("docter", "doctor"),
        ("Doctor --deep", "doctor --deep"),
        ("chek-extension x.so", "check-extension x.so"),
        ("doctor --fromat json", "doctor --format json"),
        ("doctor --form=json", "doctor --format=json"),
        ("doctor --format jsno", "doctor --format json"),
        ("doctor --format=Json", "doctor --format=json"),
        ("doctor --fail-on warnings", "doctor --fail-on warning"),
        ("doctor --only CG901 --skip cg9O2", "doctor --only CG901 --skip CG902"),
        ("doctor --skip=CG9O1", "doctor --skip=CG901"),
        ("lint --confg x.toml .", "lint --config x.toml ."),
        ("rules lsit", "rules list"),
        ("explain --formt json CG001", "explain --format json CG001"),
        ("bisect --imprts a,b", "bisect --imports a,b"),
        ("trace --outptu x.json train.py", "trace --output x.json train.py"),
    ],
)
def test_what_was_meant_is_shown_as_a_call(cudaguard, line, right):
    status, out, err = cudaguard(line)
    assert (status, out) == (2, "")
    assert "; did you mean " in err
    assert err.endswith(f"\n  run: cudaguard {right}\n")
    assert err.count("\n") == 2


@pytest.mark.parametrize("line", ["nonsense", "doctor --zzz", "lint", "rules"])
def test_where_nothing_is_near_the_help_is_named(cudaguard, line):
    status, out, err = cudaguard(line)
    assert (status, out) == (2, "")
    assert "did you mean" not in err
    assert err.splitlines()[-1].startswith("  run: cudaguard ")
    assert err.endswith(" --help\n")


def test_program_without_a_command_is_run(cudaguard, tmp_path):
    (tmp_path / "train.py").touch()
    assert cudaguard("train.py 'a b'")[2].endswith("\n  run: cudaguard run train.py 'a b'\n")


def test_ids_in_any_case(cudaguard):
    status, out, err = cudaguard("explain cg001")
    assert (status, err) == (0, "")
    assert "CG" in out.partition("\n")[0]


@pytest.mark.parametrize(
    ("id", "near"), [("cg0O1", "CG001"), ("CG1", "CG001"), ("CG-812", "CG812")]
)
def test_id_that_is_not_known_to_explain(cudaguard, id, near):
    status, out, err = cudaguard(f"explain {id}")
    assert (status, out) == (1, "")
    assert err == f"cudaguard explain: there is no id '{id}'\n  run: cudaguard explain {near}\n"
    found = valid("explain", cudaguard(f"explain {id} --format json")[1])
    assert (found["finding"], found["command"]) == (None, f"cudaguard explain {near}")


# One call of each command that it cannot follow, by its arguments and by what they name.
WRONG = [
    *(f"{command} --nonsense --format json x" for command in MODULES if command != "run"),
    "docter --format json", "doctor --format json --only ZZ",
    "doctor --format=json --timeout never", "lint --format json no_such_file.py",
    "lint --format json --config no_such_file.toml .",
    "check-extension --format json no_such_file.so", "check-extension --format json ''",
    "doctor --format json --only CG902 --skip CG902", "rules list --format json extra",
    "rules --format json", "bisect --format json no_such_file.py",
    "bisect --format json -o /no/such/folder/x.json --imports a,b", "trace --format json train.py",
]  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_error_is_a_document_where_json_was_asked_for(cudaguard, line):
    status, out, err = cudaguard(line)
    found = valid("error", out)
    assert found["status"] == status == 2
    assert found["tool"] == (line.split()[0] if line.split()[0] in MODULES else "cudaguard")
    assert found["error"]["what"] in err
    assert found["error"]["command"] in err
    assert "Traceback" not in err


def test_error_is_text_where_it_was_not(cudaguard):
    for line in ("doctor --only ZZ", "doctor --format text --only ZZ", "doctor --format html x"):
        assert cudaguard(line)[1] == ""


def test_format_of_a_program_is_not_ours(cudaguard):
    """Behind the program its options are its own."""
    assert cudaguard("bisect no_such_file.py --format json")[1] == ""


def test_last_format_counts():
    assert asks_for_json(["--format", "text", "--format=json"])
    assert not asks_for_json(["--format", "json", "--format", "text"])
    assert not asks_for_json(["--format"])
    assert not asks_for_json(["json"])


def test_no_command_shows_the_help(cudaguard):
    status, out, err = cudaguard("")
    assert (status, out) == (2, "")
    assert all(f"\n    {command}" in err for command in COMMANDS)
    assert set(COMMANDS) == set(MODULES)
