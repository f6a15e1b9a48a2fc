"""Switching rules on and off by id: argument, CUDAGUARD_RULES, configuration file."""

from __future__ import annotations

import pytest

SHOW = """
print([r.id for r in cudaguard.active_rules() if r.id in ("CG001", "OPT1", "FILE1", "ORDER1")])
"""
OPT_IN = "opt = rule('OPT1', grade='opt-in')\n"


def test_opt_in_rule_is_off_until_it_is_enabled_by_id(program):
    assert program.output(
        OPT_IN
        + "cudaguard.install(rules=[opt], disable=['CG001'])"
        + SHOW
        + "cudaguard.install(disable=['OPT1']); cudaguard.install(enable=['OPT1'])"
        + SHOW
        + "import target; print(order())"
    ) == ["[]", "['OPT1']", "needed target"]


def test_disabled_rule_does_nothing(program):
    assert program.output(
        "told = rule('TOLD', needs=(), grade='report')\n"
        "cudaguard.install(rules=[rule(), told], disable=['ORDER1', 'TOLD', 'CG001'])"
        + SHOW
        + "import target; print(order(), found())"
    ) == ["[]", "target "]


@pytest.mark.parametrize(
    ("argument", "variable", "configuration", "on"),
    [
        ("enable=['CG001']", "-CG001", "disable", True),
        ("disable=['CG001']", "+CG001", "enable", False),
        ("", "+CG001", "disable", True),
        ("", "-CG001", "enable", False),
        ("", "", "disable", False),
    ],
)
def test_argument_before_variable_before_file(program, argument, variable, configuration, on):
    path = program.write("c.toml", f'{configuration} = ["CG001"]\n')
    (line,) = program.output(
        f"cudaguard.install({argument})" + SHOW,
        env={"CUDAGUARD_RULES": variable, "CUDAGUARD_CONFIG": str(path)},
    )
    assert line == ("['CG001']" if on else "[]")


def test_id_nobody_has_may_belong_to_a_plugin_not_loaded_yet(program):
    assert program.output(
        "cudaguard.install(enable=['THEIRS7']); print(mode(), found())",
        env={"CUDAGUARD_RULES": "-THEIRS8"},
    ) == ["fix "]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("+CG799", "rule 'CG799' is not known; expected one of CG001 to "),
        ("-cg001", "rule 'cg001' is not known; write 'CG001'"),
        ("-cg812", "rule 'cg812' is not known; write 'CG812'"),
        ("+CG802", "'CG802' is a detector: on, unless it is disabled"),
        ("CG001", "got 'CG001', expected +ID to enable or -ID to disable"),
        ("+", "got '+', expected +ID"),
    ],
)
def test_bad_word_in_the_variable_is_reported_once_and_the_others_count(program, value, words):
    done = program.run(
        OPT_IN
        + "cudaguard.install(rules=[opt]); cudaguard.install()"
        + SHOW
        + "print(found()); print(cudaguard.status().findings[0].what)",
        env={"CUDAGUARD_RULES": f"{value},-CG001,+OPT1"},
    )
    *shown, what = done.stdout.splitlines()
    assert shown == ["['OPT1']", "CG806"]
    assert what.count(words) == done.stderr.count("[CG806]") == 1
    assert "CUDAGUARD_RULES" in done.stderr
