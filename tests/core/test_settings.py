"""Layers: what several calls, the environment and a file come to when they are put together."""

from __future__ import annotations

import pytest

from cudaguard.core.registry import built_in
from cudaguard.core.rule import Rule
from cudaguard.core.settings import Layer, combine, layer_of_call
from cudaguard.model import MODES

RULE = Rule("MINE", ("torch",), "w")


def call(mode=None, enable=(), disable=(), rules=(), path=None):
    return layer_of_call("install()", mode, enable, disable, rules, path)


def test_without_a_layer_nothing_is_in_force():
    for environ in ({}, {"CUDAGUARD": "strict"}, {"CUDAGUARD": "nonsense"}):
        assert combine([], (), environ).mode == "off"


def test_call_without_arguments_means_fix_and_the_built_in_rules():
    force = combine([call()], (), {})
    assert (force.mode, force.switches, force.journal, force.plugins) == ("fix", {}, "", True)
    assert {rule.id for rule, _ in force.rules} == {rule.id for rule, _ in built_in()}
    assert force.problems == ()


@pytest.mark.parametrize("variable", [None, "", "nonsense", *MODES])
@pytest.mark.parametrize("argument", [None, *MODES])
@pytest.mark.parametrize("file", [None, *MODES])
@pytest.mark.parametrize("alone", [False, True])
def test_mode_of_every_combination(tmp_path, variable, argument, file, alone):
    if alone and argument is not None:
        argument = None  # whoever names a mode is a call
    environ = {} if variable is None else {"CUDAGUARD": variable}
    if file is not None:
        (tmp_path / "c.toml").write_text(f"mode = '{file}'\n", encoding="utf-8")
        environ["CUDAGUARD_CONFIG"] = str(tmp_path / "c.toml")
    layer = call(argument).replace(alone=alone)
    force = combine([layer], (), environ)
    if variable == "off" or (variable == "nonsense" and alone):
        expected = "off"
    else:
        said = variable if variable in MODES else None
        expected = argument or said or file or "fix"
    assert force.mode == expected
    assert bool(force.problems) == (variable == "nonsense")


def test_call_over_the_activation_by_variable_is_a_call():
    assert call().over(Layer(alone=True)).alone is False


def test_rules_come_in_the_order_built_in_file_added_calls(tmp_path):
    (tmp_path / "c.toml").write_text(
        "[[rules]]\nid = 'F'\nwatch = ['x']\nwhy = 'w'\n", encoding="utf-8"
    )
    layer = call(rules=[RULE], path=tmp_path / "c.toml")
    added = [(RULE.replace(id="ADDED"), "add_rule()")]
    ids = [rule.id for rule, _ in combine([layer], added, {}).rules]
    assert ids[-3:] == ["F", "ADDED", "MINE"]


def test_file_of_a_call_beats_the_file_of_the_environment_altogether(tmp_path):
    for name, text in (("a", "mode = 'warn'"), ("b", "journal = 'j'\nmode = 'strict'")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    environ = {"CUDAGUARD_CONFIG": str(tmp_path / "b")}
    force = combine([call(path=tmp_path / "a")], (), environ)
    assert (force.mode, force.journal) == ("warn", "")
    assert combine([call()], (), environ).journal == "j"


def test_unusable_file_of_the_environment_is_one_problem_and_the_rest_counts():
    environ = {"CUDAGUARD_CONFIG": "/no/such/file", "CUDAGUARD_RULES": "-CG001"}
    force = combine([call()], (), environ)
    (problem,) = force.problems
    assert "/no/such/file" in problem
    assert (force.mode, force.switches) == ("fix", {"CG001": False})
