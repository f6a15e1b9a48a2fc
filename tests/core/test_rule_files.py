"""Rules written as ``[[rules]]`` tables: what a table becomes and what is said of a bad one."""

from __future__ import annotations

import pytest

from cudaguard.core import settings as layers
from cudaguard.core.rule import Rule
from cudaguard.core.rule_check import rules_from_tables
from cudaguard.errors import RuleError

MINIMAL = {"id": "MINE", "watch": ["torch"], "why": "It breaks."}
FULL = """
[[rules]]
id = "MINE"
title = "A title"
watch = ["torch", "nvidia.dali"]
why = "It breaks."
dist = ["decord<=0.6.0"]
needs = ["numpy"]
actions = [{ load_local = "lib*.so" }]
grade = "opt-in"
links = ["https://example.org"]
fixed_in = "2.0"
verified = "2026-01-01"
[rules.when]
python = ">=3.9"
platform = ["linux"]
env = {A = true, B = "x"}
dists = {numpy = ""}

[[rules]]
id = "LAST"
watch = ["x"]
why = "w"
"""


def rules_in(tmp_path, text):
    """Return the rules that a configuration file puts in force, and their origins."""
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="utf-8")
    layer = layers.layer_of_call("install()", None, (), (), (), path)
    force = layers.combine([layer], (), {})
    return [(rule, origin) for rule, origin in force.rules if origin != "built-in"], str(path)


def test_every_field_arrives_and_the_origin_is_the_file(tmp_path):
    found, path = rules_in(tmp_path, FULL)
    assert [origin for _, origin in found] == [path, path]
    assert found[0][0].rule == Rule(
        "MINE", ("torch", "nvidia.dali"), "It breaks.", title="A title", dist=("decord<=0.6.0",),
        when={"python": ">=3.9", "platform": ["linux"], "env": {"A": True, "B": "x"},
              "dists": {"numpy": ""}},
        needs=("numpy",), actions=({"load_local": "lib*.so"},), grade="opt-in",
        links=("https://example.org",), fixed_in="2.0", verified="2026-01-01",
    )  # fmt: skip
    assert found[1][0].rule == Rule("LAST", ("x",), "w")


@pytest.mark.parametrize("key", ["id", "watch", "why"])
def test_missing_key_is_named_with_file_and_number_of_the_table(key):
    table = {k: v for k, v in MINIMAL.items() if k != key}
    with pytest.raises(RuleError) as caught:
        rules_from_tables([MINIMAL, table], "some.toml")
    assert str(caught.value) == f"some.toml: [[rules]] number 2: the key {key!r} is missing"


def test_unknown_key_is_named_with_those_that_are_known():
    with pytest.raises(RuleError) as caught:
        rules_from_tables([{**MINIMAL, "need": ["x"]}], "some.toml")
    message = str(caught.value)
    assert message.startswith("some.toml: [[rules]] number 1: unknown key 'need'; expected one of ")
    for field in Rule._fields:
        assert field in message


def test_action_of_a_file_is_shown_and_corrected_in_toml():
    action = {"set_env": "A", "valu": "x"}
    with pytest.raises(RuleError) as caught:
        rules_from_tables([{**MINIMAL, "actions": [action], "grade": "report"}], "some.toml")
    assert str(caught.value) == (
        "some.toml: [[rules]] number 1: rule 'MINE', actions: "
        'got { set_env = "A", valu = "x" }: '
        "'valu' is not a parameter of set_env, which takes only value, beside; "
        'did you mean { set_env = "A", value = "x" }?'
    )


def test_bad_rule_in_a_file_named_by_the_environment_is_a_problem_and_the_file_is_ignored(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text("mode = 'warn'\ndisable = ['CG001']\n[[rules]]\nid = 'x'\n", encoding="utf-8")
    force = layers.combine([layers.Layer()], (), {"CUDAGUARD_CONFIG": str(path)})
    (problem,) = force.problems
    assert "number 1: the key 'watch' is missing" in problem
    assert (force.mode, force.switches) == ("fix", {})
