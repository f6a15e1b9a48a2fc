"""The registry: rules in force by module, replaced by id, switched by id."""

from __future__ import annotations

from cudaguard.core.registry import BUILT_IN, Registry, built_in, entry_of
from cudaguard.core.rule import Rule
from cudaguard.core.table import table


def rule(id, watch=("m",), **fields):
    return Rule(id, watch, "w", **fields)


def names(registry):
    return {name: [one.id for one in found] for name, found in registry.by_module.items()}


def test_rules_by_module_keep_their_order():
    a, b, c = rule("A", ("m", "n")), rule("B", ("n",)), rule("C", ("m",))
    registry = Registry([(entry_of(one), "x") for one in (a, b, c)], {})
    assert registry.rules == (a, b, c)
    assert names(registry) == {"m": ["A", "C"], "n": ["A", "B"]}
    assert registry.rules_of("n") == (a, b)
    assert (registry.rule("B"), registry.rule("D")) == (b, None)


def test_later_rule_replaces_an_earlier_one_in_every_index():
    old = rule("A", ("old",), actions=({"load_local": "old*"},))
    new = rule("A", ("new",), actions=({"load_local": "new*"},))
    registry = Registry([(entry_of(old), BUILT_IN), (entry_of(new), "mine")], {})
    assert registry.rules == (new,)
    assert names(registry) == {"new": ["A"]}
    assert [one.does for one in registry.entries if one.does] == [(("load_local", "new*"),)]
    assert registry.is_users(new)


def test_rules_of_ours_and_of_the_user():
    ours, theirs = rule("A"), rule("B")
    registry = Registry([(entry_of(ours), BUILT_IN), (entry_of(theirs), "plug-in x")], {})
    assert not registry.is_users(ours)
    assert registry.is_users(theirs)


def test_parameters_are_no_verbs():
    one = rule("A", actions=({"set_env": "NAME", "value": "1"}, {"load_local": "b:c"}))
    assert entry_of(one).does == (("set_env", "NAME"), ("load_local", "b:c"))


def test_built_in_rule_is_made_when_it_is_asked_for():
    entries = [entry for entry, origin in built_in("win32") if origin == BUILT_IN]
    assert [entry.id for entry in entries] == [row[0] for row in table.index.RULES]
    for entry in entries:
        made = entry_of(entry.rule)
        for field in ("id", "grade", "watch", "needs", "does"):
            assert getattr(made, field) == getattr(entry, field), (entry.id, field)


def test_no_rule_is_made_by_installing(child):
    done = child.python(
        """
        import sys, cudaguard
        cudaguard.install().mode
        print([name for name in sys.modules if name.startswith("cudaguard.features.")])
        print(len(cudaguard.status().rules) > 5)
        """
    )
    assert done.stdout.splitlines() == ["['cudaguard.features._index']", "True"]
