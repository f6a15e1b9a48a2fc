"""The invariants of every built-in rule and detector."""

from __future__ import annotations

import inspect
import re
from datetime import date

import pytest
from packaging.requirements import Requirement

from cudaguard.core import findings
from cudaguard.core.decide import plan
from cudaguard.core.explain import known_errors
from cudaguard.core.rule import Rule
from cudaguard.core.rule_check import check_rule
from cudaguard.core.table import table
from cudaguard.tools.explain import RULES

IDS = [rule.id for rule in RULES]
DETECTORS = {one.id: one.title for one in (*table.kinds(), *known_errors())}
each_rule = pytest.mark.parametrize("rule", RULES, ids=IDS)


class EverythingApplies:
    """Facts under which no condition of version, platform or environment is asked."""

    python, platform, machine, environ = "3.11.0", "", "", {}

    def version(self, dist):
        return None


def test_ids_are_unique_and_disjoint_from_those_of_detectors():
    assert len(set(IDS)) == len(IDS)
    assert not set(IDS) & set(DETECTORS)


@each_rule
def test_id_is_in_the_range_of_rules(rule):
    assert re.fullmatch(r"CG[0-7]\d\d", rule.id)
    assert 1 <= int(rule.id[2:]) <= 799


@pytest.mark.parametrize("id", DETECTORS)
def test_detector_has_an_id_in_its_range_and_a_text(id):
    assert re.fullmatch(r"CG[78]\d\d", id)  # 7: what explains a message, and is no finding
    assert DETECTORS[id].strip()
    assert not DETECTORS[id].endswith(".")


@each_rule
def test_grammar(rule):
    assert check_rule(rule, "catalog", known=IDS) is rule


@each_rule
def test_rule_says_what_it_is_and_why(rule):
    assert rule.title.strip() == rule.title != ""
    assert "\n" not in rule.title
    assert len(rule.title) <= 100
    assert rule.why.endswith(".")
    assert rule.title != rule.why


@each_rule
def test_evidence_is_given_and_public(rule):
    assert rule.links
    assert len(set(rule.links)) == len(rule.links)
    for link in rule.links:
        assert re.fullmatch(r"https://[\w.-]+\.[a-z]+/\S*", link), link


@each_rule
def test_verified_is_none_or_starts_with_a_date(rule):
    if rule.verified is not None:
        date.fromisoformat(rule.verified[:10])
        assert rule.verified[10:].strip(" :,"), "say with which versions"


@each_rule
def test_rule_that_acts_by_default_has_been_seen_to_be_needed(rule):
    assert rule.grade != "automatic" or rule.verified is not None


@each_rule
def test_rule_does_something(rule):
    assert rule.needs or rule.actions or rule.grade == "report"


@each_rule
def test_rule_does_not_ask_for_what_it_watches_or_a_part_of_it(rule):
    for need in rule.needs:
        for watched in rule.watch:
            assert need != watched
            assert not need.startswith(f"{watched}.")


@each_rule
def test_names_are_not_repeated(rule):
    for values in (rule.watch, rule.needs, rule.dist):
        assert len(set(values)) == len(values)
    assert all(rule.actions.count(action) == 1 for action in rule.actions)


def exclude_one_another(one, other):
    """Are the rules for versions of one distribution that cannot be installed together?"""
    wanted = {Requirement(item).name: Requirement(item).specifier for item in one.dist}
    for item in other.dist:
        theirs = Requirement(item)
        if (ours := wanted.get(theirs.name)) is None:
            continue
        bounds = [clause.version for clause in (*ours, *theirs.specifier)]
        tried = [version for bound in bounds for version in (bound, f"{bound}.1")]
        return not any(version in ours and version in theirs.specifier for version in tried)
    return False


def test_versions_that_exclude_one_another_are_told_from_those_that_do_not():
    def rule(dist):
        return Rule("X", ("x",), "x", dist=(dist,))

    assert exclude_one_another(rule("a>=1,<2"), rule("a>=2"))
    assert not exclude_one_another(rule("a>=1,<2"), rule("a>=1.5"))
    assert not exclude_one_another(rule("a>=1,<2"), rule("b>=2"))


@each_rule
def test_order_contradicts_no_other_rule_that_can_apply_at_the_same_time(rule):
    by_module: dict[str, tuple[Rule, ...]] = {}
    together = [rule]
    for one in RULES:
        if one is not rule and not any(exclude_one_another(one, other) for other in together):
            together.append(one)
    for one in (other.replace(dist=(), when={}, grade="automatic") for other in together):
        for name in one.watch:
            by_module[name] = (*by_module.get(name, ()), one)
    for name in rule.watch:
        found = plan(
            name, lambda name: by_module.get(name, ()), lambda _: False, EverythingApplies()
        )
        assert found.problems == ()


def test_messages_use_only_ids_that_are_registered():
    used = set(re.findall(r'"(CG\d\d\d)"', inspect.getsource(findings)))
    assert used
    assert used <= set(DETECTORS)
