"""The registry: rules in force by module, replaced by id, switched by id."""

from __future__ import annotations

import pytest

from cudaguard.core.registry import BUILT_IN, Registry
from cudaguard.model import Rule


def rule(id, watch=("m",), **fields):
    return Rule(id, watch, "w", **fields)


def test_empty():
    registry = Registry((), {})
    assert (registry.rules, registry.by_module, registry.scoping) == ((), {}, ())


def test_rules_by_module_keep_their_order():
    a, b, c = rule("A", ("m", "n")), rule("B", ("n",)), rule("C", ("m",))
    registry = Registry([(a, "x"), (b, "x"), (c, "x")], {})
    assert registry.rules == (a, b, c)
    assert registry.by_module == {"m": (a, c), "n": (a, b)}


def test_later_rule_replaces_an_earlier_one_in_every_index():
    old = rule("A", ("old",), actions=({"load_local": "old*"},))
    new = rule("A", ("new",), actions=({"load_local": "new*"},))
    registry = Registry([(old, BUILT_IN), (new, "mine")], {})
    assert registry.rules == (new,)
    assert registry.by_module == {"new": (new,)}
    assert registry.scoping == (("new*", new),)
    assert registry.is_users(new)


@pytest.mark.parametrize(
    ("grade", "switch", "on"),
    [
        ("automatic", None, True), ("report", None, True), ("opt-in", None, False),
        ("automatic", False, False), ("report", False, False), ("opt-in", True, True),
        ("fix", True, True), ("opt-in", False, False),
    ],
)  # fmt: skip
def test_grade_and_switch(grade, switch, on):
    switches = {} if switch is None else {"A": switch}
    assert bool(Registry([(rule("A", grade=grade), "x")], switches).rules) is on


def test_switched_off_rule_is_in_no_index():
    registry = Registry([(rule("A", actions=({"load_local": "x"},)), "x")], {"A": False})
    assert (registry.rules, registry.by_module, registry.scoping) == ((), {}, ())


def test_switch_for_an_id_nobody_has_does_nothing():
    assert Registry([(rule("A"), "x")], {"B": False}).rules == (rule("A"),)


def test_rules_of_ours_and_of_the_user():
    ours, theirs = rule("A"), rule("B")
    registry = Registry([(ours, BUILT_IN), (theirs, "plug-in x")], {})
    assert not registry.is_users(ours)
    assert registry.is_users(theirs)


def test_each_action_that_names_a_library_is_indexed_by_its_pattern():
    one = rule("A", actions=({"load_local": "a*"}, {"load_local": "b:c"}))
    assert Registry([(one, "x")], {}).scoping == (("a*", one), ("b:c", one))


def test_wide_pattern_takes_nothing_from_what_is_global_on_purpose():
    from cudaguard.features.symbol_scope.patterns import rules_for_library

    rule = Rule("WIDE", ("pkg",), "why", actions=({"load_local": "lib*.so*"},))
    scoping = Registry([(rule, "test")], {}).scoping
    assert rules_for_library("/pkg/libother.so.1", scoping) == (rule,)
    for name in (
        "libtorch_global_deps.so",
        "libgomp-a34b3233.so.1",
        "libcudart.so.12",
        "libc.so.6",
    ):
        assert rules_for_library(f"/pkg/{name}", scoping) == ()
