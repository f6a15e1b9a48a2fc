"""The command that lists, shows and checks rules."""

from __future__ import annotations

import sys

import pytest

from cudaguard.tools.explain import RULES

from ..documents import valid

TABLE = "[[rules]]\nid = '{}'\nwatch = ['{}']\nneeds = ['{}']\nwhy = 'it must'\n"


@pytest.fixture
def rules(child):
    """Runs the command; returns exit status, lines on stdout, and stderr."""

    def rules(*arguments, env=None):
        command = (sys.executable, "-m", "cudaguard", "rules", *arguments)
        done = child.command(*command, env=env or {}, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr

    return rules


def test_list_has_every_rule_and_says_which_are_on(rules):
    status, lines, err = rules("list")
    assert (status, err) == (0, "")
    assert [line[:5] for line in lines] == sorted(rule.id for rule in RULES)
    assert "CG001  on   automatic  decord exposes" in lines[0]
    assert any(line.startswith("CG013  off  opt-in     pycuda.autoinit") for line in lines)
    more = " ".join(" ".join(rules("list", "-v")[1]).split())
    assert "watches decord; applies to decord<=0.6.0, " in more.split("because: decord loads")[1]


def test_switches_and_rules_of_the_environment_count(rules, child):
    path = child.write(
        "my.toml", "[[rules]]\nid = 'LOCAL1'\nwatch = ['x']\nneeds = ['y']\nwhy = 'because'\n"
    )
    env = {"CUDAGUARD_RULES": "+CG013,-CG001", "CUDAGUARD_CONFIG": str(path)}
    states = {line.split()[0]: line.split()[1] for line in rules("list", env=env)[1]}
    assert (states["CG001"], states["CG013"], states["LOCAL1"]) == ("off", "on", "on")


def test_json(rules):
    document = valid("rules", "\n".join(rules("list", "--format", "json")[1]))
    assert document["tool"] == "rules list"
    assert {rule["id"]: rule["is_on"] for rule in document["rules"]}["CG001"] is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rules]]\nid = 'LOCAL1'\nwatch = ['x']\n", "the key 'why' is missing"),
        ("[[rules]]\nid = 'CG900'\nwatch = ['x']\nwhy = 'y'\n", "ids that start with CG"),
        ("mode = 'fast'\n", "mode"),
        ("[[rules\n", "not a valid TOML file"),
        ("enable = ['CG799']\n", "rule 'CG799' is not known"),
        (f"{TABLE.format('A', 'x', 'y')}{TABLE.format('A', 'y', 'z')}", "'A' stands there 2 times"),
        (
            f"{TABLE.format('A', 'x', 'y')}{TABLE.format('B', 'y', 'x')}",
            "B wants x before y; A wants",
        ),
    ],
)
def test_check_names_what_is_wrong(rules, child, text, said):
    path = child.write("my.toml", text)
    status, lines, err = rules("check", str(path))
    assert (status, lines, said in err, "my.toml" in err) == (1, [], True, True)


def test_check_of_what_is_right_and_of_what_is_not_there(rules, child):
    path = child.write("my.toml", "[[rules]]\nid = 'LOCAL1'\nwatch = ['x']\nwhy = 'y'\n")
    assert rules("check", "-v", str(path)) == (0, [f"{path}: OK (1 rule: LOCAL1)"], "")
    status, lines, err = rules("check", str(path), "nothing.toml")
    assert (status, len(lines)) == (1, 1)
    assert "cannot read the configuration file" in err


def test_orders_that_are_not_asked_for_do_not_contradict(rules, child):
    opposite = TABLE.format("A", "x", "y") + TABLE.format("B", "y", "x")
    for more in ("when = {platform = 'elsewhere'}\n", "grade = 'opt-in'\n"):
        path = child.write("my.toml", opposite + more)
        assert rules("check", str(path)) == (0, [f"{path}: OK (2 rules)"], "")
    assert rules("check", str(child.write("my.toml", f"disable = ['A']\n{opposite}")))[0] == 0


def test_no_task_is_wrong_usage(rules):
    status, lines, err = rules()
    assert (status, lines) == (2, [])
    assert "the following arguments are required: TASK" in err
    assert "run: cudaguard rules --help" in err
