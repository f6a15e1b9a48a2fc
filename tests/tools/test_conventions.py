"""What holds for every command: help by example, one document on stdout, no color in a pipe."""

from __future__ import annotations

import json
import re
import sys

import pytest

from cudaguard.tools.main import COMMANDS, Parser, configure, main

from ..documents import valid

CUDAGUARD = (sys.executable, "-m", "cudaguard")
HEAVY = (
    "ctypes", "importlib.metadata", "importlib_metadata", "json", "logging", "multiprocessing",
    "numpy", "packaging", "pynvml", "selectors", "subprocess", "tempfile", "tomllib", "torch",
    "wrapt", "cudaguard.api",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_example_and_names_the_exit_statuses(child, command):
    done = child.command(*CUDAGUARD, command, "--help", env={"COLUMNS": "100"})
    assert f"cudaguard {command}" in done.stdout.lower().partition("example")[2]
    assert (done.stderr, "\033" in done.stdout) == ("", False)
    if command not in ("run", "trace"):  # which end as the program does
        assert "exit status: 0" in done.stdout.lower()


def test_help_of_all(child):
    done = child.command(*CUDAGUARD, "--help")
    for command, summary in COMMANDS.items():
        assert command in done.stdout
        assert summary.split()[0] in done.stdout
    assert "examples:" in done.stdout
    assert child.command(*CUDAGUARD, check=False).returncode == 2


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["rules", "list", "--help"]])
def test_help_and_version_import_nothing_heavy(child, arguments):
    code = f"""
        import sys
        before = set(sys.modules)
        from cudaguard.tools.main import main
        try:
            main({arguments!r})
        except SystemExit as done:
            assert not done.code
        print("loaded", *sorted(set(sys.modules) - before))
        """
    *_, last = child.python(code).stdout.splitlines()
    assert set(last.split()) & set(HEAVY) == set()
    assert "argparse" in last


def options_of(parser):
    """Return (formats, has -o) of a command, or of its tasks, which have the same."""
    tasks = [task for a in parser._actions if isinstance(a.choices, dict) for task in a.choices]
    parsers = [a.choices[t] for a in parser._actions if isinstance(a.choices, dict) for t in tasks]
    found = set()
    for one in parsers or [parser]:
        options = one._option_string_actions
        formats = tuple(options["--format"].choices) if "--format" in options else ()
        found.add((formats, "-o" in options))
    (only,) = found
    return only, tasks


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "demo"])
def test_table_of_formats_is_that_of_the_parsers(root, command):
    text = (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    table = text.partition("| command | `--format` |")[2].partition("\n\n")[0]
    (row,) = [line for line in table.splitlines() if line.startswith(f"| `{command}")]
    _, names, formats, outputs, _ = (cell.strip() for cell in row.split("|"))
    parser = Parser(prog=command)
    configure(command, parser)
    (told, has_output), tasks = options_of(parser)
    known = re.findall(r"`([a-z]+)`", formats) if told else []
    assert (tuple(known), bool(outputs)) == (told, has_output)
    assert re.findall(r"`(?:rules )?([a-z-]+)`", names) == (tasks or [command])


@pytest.mark.parametrize(
    "line",
    ["explain CG001", "rules list", "lint .", "rules check my.toml",
     "doctor --only CG905", "check-extension ."],
)  # fmt: skip
def test_document_goes_to_a_file_as_its_suffix_says(child, line):
    child.write("my.toml", "")
    plain = child.command(*CUDAGUARD, *line.split())
    shown = child.command(*CUDAGUARD, *line.split(), "-o", "a.txt", env={"FORCE_COLOR": "1"})
    assert shown.stdout == ""
    timeless = (re.sub(r"[\d.]+ s", "S", text) for text in (plain.stdout, read(child, "a.txt")))
    assert len(set(timeless)) == 1
    child.command(*CUDAGUARD, *line.split(), "--output", "a.json")
    head = list(json.loads(read(child, "a.json")))[:3]
    assert head == ["schema", "tool", "version"]
    child.command(*CUDAGUARD, *line.split(), "--format", "text", "-o", "b.json")
    assert read(child, "b.json")[:1] != "{"


def read(child, name):
    return (child.folder / name).read_text(encoding="utf-8")


def test_file_that_cannot_be_written(child):
    done = child.command(*CUDAGUARD, "rules", "list", "--format", "json", "-o", "no/x", check=False)
    assert done.returncode == 3
    assert valid("error", done.stdout)["error"]["what"].startswith("no/x cannot be written: No")
    done = child.command(*CUDAGUARD, "doctor", "--only", "ZZ", "-o", "new.txt", check=False)
    assert done.returncode == 2
    assert not (child.folder / "new.txt").exists()


def test_every_json_document_begins_alike(root):
    for path in sorted((root / "cudaguard" / "tools" / "schema").glob("*.json")):
        whole = json.loads(path.read_text(encoding="utf-8"))
        for head in whole.get("oneOf", [whole]):
            assert list(head["properties"])[:3] == ["schema", "tool", "version"], path.name
            assert {"schema", "tool", "version"} <= set(head["required"])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_quiet_and_verbose_are_the_same_everywhere(command, capsys):
    with pytest.raises(SystemExit):
        main(["help", command])
    said = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert capsys.readouterr().out == said
    parser = Parser()
    configure(command, parser)
    tasks = [one.choices for one in parser._actions if isinstance(one.choices, dict)]
    for one in tasks[0].values() if tasks else [parser]:
        assert {"-q", "--quiet", "-v", "--verbose"} <= one._option_string_actions.keys()


@pytest.mark.parametrize(
    "words", ["run CG868", "bisect CG868", "check-extension CG868", "doctor --only CG868"]
)
def test_id_that_a_command_does_not_know_is_handed_to_explain(words, capsys):
    assert main(words.split()) == 2
    assert "run: cudaguard explain CG868\n" in capsys.readouterr().err


def test_run_and_doctor_take_a_configuration_file(child):
    child.write("mine.toml", 'disable = ["CG001"]\n')
    code = "import cudaguard; print('CG001' in [r.id for r in cudaguard.status().rules])"
    for options, is_on in (((), True), (("--config", "mine.toml"), False)):
        done = child.command(sys.executable, "-m", "cudaguard", "run", *options, "-c", code)
        assert done.stdout == f"{is_on}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mode =", "bad.toml: not a valid TOML file"),
        ("enable = 3", "bad.toml: enable: expected a list of rule ids, got 3"),
        ("[[rules]]\nid = 'X1'", "bad.toml: [[rules]] number 1: the key 'watch' is missing"),
        (None, "bad.toml: cannot read the configuration file: [Errno 2] No such file"),
    ],
)
def test_configuration_file_of_the_command_line_that_cannot_be_used(child, text, said):
    if text is not None:
        child.write("bad.toml", text)
    for words in (("run", "--config", "bad.toml", "x.py"), ("doctor", "--config", "bad.toml")):
        done = child.command(sys.executable, "-m", "cudaguard", *words, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"cudaguard {words[0]}: --config {said}" in done.stderr
        assert done.stderr.endswith("\n  run: cudaguard rules check bad.toml\n")


@pytest.mark.parametrize(
    ("line", "next_words"),
    [("cudaguard doc", {"doctor "}), ("cudaguard rules list --ver", {"--verbose "}),
     ("cudaguard rules ", {"list", "check"})],
)  # fmt: skip
def test_shell_is_told_what_may_come_next(child, line, next_words):
    """As bash asks, once `register-python-argcomplete cudaguard` was evaluated."""
    pytest.importorskip("argcomplete")
    asks = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": "next",
            "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}  # fmt: skip
    child.command(sys.executable, "-m", "cudaguard", env=asks, check=False)
    assert next_words <= set((child.folder / "next").read_text().split("\n"))


def test_magic_prints_a_plain_list(child):
    """In a process of its own: others have left their changes here."""
    done = child.python("from cudaguard.tools.ipython import show_status; show_status('')")
    assert done.stdout == "cudaguard: mode off, 0 rules in force\n"
