"""From rules and facts to a plan, with facts made by hand: policy looks at nothing by itself."""

from __future__ import annotations

import pytest

from cudaguard.core.decide import applies, plan
from cudaguard.core.rule import Permit, Rule, permit_for


class HandMade:
    """Facts as a test wants them; notes what was asked."""

    def __init__(self, dists=None, environ=None, **facts):
        self.python = facts.get("python", "3.11.4")
        self.platform = facts.get("platform", "linux")
        self.machine = facts.get("machine", "x86_64")
        self.environ = environ or {}
        self.dists = dists or {}
        self.asked = []

    def version(self, dist):
        self.asked.append(dist)
        return self.dists.get(dist)


def rule(id="R1", watch=("target",), **fields):
    return Rule(id, watch, "w", **fields)


def plan_of(name, *rules, users=(), facts=None):
    by_module: dict[str, tuple[Rule, ...]] = {}
    for one in rules:
        for watched in one.watch:
            by_module[watched] = (*by_module.get(watched, ()), one)
    rules_of = lambda watched: by_module.get(watched, ())  # noqa: E731
    return plan(name, rules_of, lambda r: r.id in users, facts or HandMade())


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({}, True), ({"platform": "linux"}, True), ({"platform": "win32"}, False),
        ({"platform": ["darwin", "linux"]}, True), ({"platform": ("darwin", "win32")}, False),
        ({"platform": "linux2"}, False), ({"machine": "x86_64"}, True),
        ({"machine": ["aarch64"]}, False), ({"python": ">=3.11"}, True),
        ({"python": ">=3.11.5"}, False), ({"python": ">=3.9,<3.11"}, False),
        ({"python": ""}, True), ({"env": {"SET": True}}, True), ({"env": {"SET": False}}, False),
        ({"env": {"UNSET": True}}, False), ({"env": {"UNSET": False}}, True),
        ({"env": {"EMPTY": True}}, False), ({"env": {"EMPTY": False}}, True),
        ({"env": {"SET": "value"}}, True), ({"env": {"SET": "other"}}, False),
        ({"env": {"UNSET": ""}}, True), ({"env": {"SET": "value", "UNSET": True}}, False),
        ({"dists": {"there": ""}}, True), ({"dists": {"there": ">=2"}}, True),
        ({"dists": {"there": "<2"}}, False), ({"dists": {"absent": ""}}, False),
        ({"dists": {"absent": ">=0"}}, False), ({"dists": {"odd": ""}}, True),
        ({"dists": {"odd": ">=0"}}, False), ({"dists": {"there": "", "absent": ""}}, False),
        ({"platform": "linux", "machine": "x86_64", "python": ">3", "env": {"SET": True}}, True),
        ({"platform": "linux", "machine": "arm64", "python": ">3", "env": {"SET": True}}, False),
    ],
    ids=str,
)  # fmt: skip
def test_every_condition_must_hold(when, holds):
    facts = HandMade(dists={"there": "2.0", "odd": "banana"}, environ={"SET": "value", "EMPTY": ""})
    assert applies(rule(when=when), facts) is holds


@pytest.mark.parametrize(
    ("dist", "holds"),
    [
        ((), True),
        (("decord<=0.6.0",), True),
        (("decord<0.6.0",), False),
        (("decord<0.6.0", "eva-decord"), True),
        (("absent", "decord<0.6.0"), False),
        (("absent", "missing"), False),
    ],
)
def test_any_one_of_the_distributions_is_enough(dist, holds):
    facts = HandMade(dists={"decord": "0.6.0", "eva-decord": "0.6.1"})
    assert applies(rule(dist=dist), facts) is holds


@pytest.mark.parametrize(
    ("versions", "holds"),
    [
        ({"x": "1.4", "y": "2.0"}, False),
        ({"x": "3.0", "y": "4.1"}, False),
        ({"x": "1.4", "y": "4.1"}, True),
        ({"x": "1.4"}, True),
        ({}, True),
    ],
)
def test_pairs_that_fit_one_another_are_excepted(versions, holds):
    pairs = [{"x": "==1.*", "y": "==2.*"}, {"x": "==3.*", "y": "==4.*"}]
    assert applies(rule(when={"unless": pairs}), HandMade(dists=versions)) is holds


def test_metadata_is_read_only_if_the_cheap_conditions_hold():
    facts = HandMade(platform="win32")
    assert not applies(rule(when={"platform": "linux"}, dist=("decord",)), facts)
    assert not applies(rule(when={"env": {"A": True}, "dists": {"x": ""}}), facts)
    assert facts.asked == []


# --- plans ------------------------------------------------------------------------------------


def test_needs_keep_the_order_of_the_rule():
    found = plan_of("target", rule("R2", needs=("m",)), rule(needs=("z", "a", "m")))
    assert [name for name, _ in found.needs] == ["z", "a", "m"]


def test_needs_of_several_rules_are_merged_and_name_the_first_rule_that_asks():
    found = plan_of("target", rule("R1", needs=("a", "b")), rule("R2", needs=("b", "c")))
    assert found.needs == (("a", "R1"), ("b", "R1"), ("c", "R2"))


def test_order_among_prerequisites_follows_the_rules_of_the_prerequisites():
    found = plan_of(
        "target",
        rule("R1", needs=("a",)),
        rule("R2", needs=("b",)),
        rule("R3", watch=("a",), needs=("middle",)),
        rule("R4", watch=("middle",), needs=("b",)),
    )
    # `middle` is not asked for by a rule of the target: importing `a` will see to it.
    assert [need for need, _ in found.needs] == ["b", "a"]


def test_rules_of_modules_that_are_out_of_reach_do_not_matter():
    cycle = [rule("X", watch=("x",), needs=("y",)), rule("Y", watch=("y",), needs=("x",))]
    found = plan_of("target", rule(needs=("a",)), *cycle)
    assert (found.needs, found.problems) == ((("a", "R1"),), ())


def test_cycle_is_a_problem_and_the_rest_of_the_plan_stands():
    found = plan_of(
        "target",
        rule("R1", needs=("a",)),
        rule("R2", watch=("a",), needs=("target",)),
        rule("R3", needs=("b",)),
    )
    assert found.needs == (("b", "R3"),)
    assert found.problems == (
        "R1 wants a before target; R2 wants target before a: this cannot be done",
    )


def test_plan_is_of_rules_that_apply_and_names_the_one_that_acts():
    facts, when, a = HandMade(), {"platform": "elsewhere"}, ("a",)
    told, opposite = rule(needs=a, grade="report"), rule("R2", a, needs=("target",), grade="report")
    rules = [told, told.replace(when=when), rule("R3", needs=a), rule("R4"), rule("R5", a, dist=a),
             opposite, rule("R6", a, needs=("target",), when=when)]  # fmt: skip
    assert plan_of("target", *rules, facts=facts) == ((("a", "R3"),), (told,), ())
    assert facts.asked == []  # R5 orders nothing


def test_part_of_a_package_cannot_come_before_the_package():
    found = plan_of(
        "pack",
        rule("R1", watch=("pack",), needs=("a",)),
        rule("R2", watch=("a",), needs=("pack.part",)),
    )
    assert found.needs == ()
    (problem,) = found.problems
    for words in ("Python itself wants pack before pack.part", "R1 wants a before pack",
                  "R2 wants pack.part before a"):  # fmt: skip
        assert words in problem


def test_rules_of_a_package_count_for_whoever_asks_for_a_part_of_it():
    found = plan_of(
        "target", rule("R1", needs=("pack.part",)), rule("R2", watch=("pack",), needs=("target",))
    )
    assert found.needs == ()
    (problem,) = found.problems
    assert "Python itself wants pack before pack.part" in problem


def test_part_of_another_package_is_an_ordinary_prerequisite():
    found = plan_of("target", rule(needs=("other.part", "pack.part", "pack")))
    # What Python does by itself wins over the order of the rule, in silence.
    assert [need for need, _ in found.needs if "pack" in need] == ["pack", "pack.part"]
    assert ("other.part", "R1") in found.needs
    assert found.problems == ()


# --- two rules that say the opposite ------------------------------------------------------------

DISTS, LINUX = {"x": "1.0", "y": "1.0"}, {"platform": "linux"}


@pytest.mark.parametrize(
    ("winner", "loser", "users"),
    [
        ({"when": {"platform": "linux"}}, {}, "LOSER"),
        ({"when": {"platform": "linux", "python": ">3"}}, {"when": {"platform": "linux"}}, "LOSER"),
        ({"when": {"env": {"A": False, "B": False}}}, {"when": {"env": {"A": False}}}, ""),
        ({"when": {"platform": "linux"}, "dist": ("x",)}, {"dist": ("x==1.0",)}, "LOSER"),
        ({"dist": ("x==1.0",)}, {"dist": ("x<2,>0",)}, "LOSER"),
        ({"dist": ("x<2,>0",)}, {"dist": ("x<2",)}, "LOSER"),
        ({"dist": ("x<2",)}, {"dist": ("x<2", "y")}, "LOSER"),
        ({"when": {"env": dict.fromkeys("ABC", False)}}, {"dist": ("x",), "when": LINUX}, "LOSER"),
        ({}, {}, "WINNER"),
        ({"dist": ("x<2",)}, {"dist": ("y<2",)}, "WINNER"),
        ({"dist": ("x",)}, {"when": LINUX}, "WINNER"),
    ],
    ids=["a condition", "more conditions", "table entries", "conditions beat versions",
         "exact version", "more clauses", "widest alternative counts", "entries and conditions",
         "user", "user in a tie", "user and any version"],
)  # fmt: skip
def test_opposite_rules_are_ranked(winner, loser, users):
    facts = HandMade(dists=DISTS)
    strong = rule("WINNER", watch=("target",), needs=("other",), **winner)
    weak = rule("LOSER", watch=("other",), needs=("target",), **loser)
    for rules in ((strong, weak), (weak, strong)):
        found = plan_of("target", *rules, users=(users,), facts=facts)
        assert (found.needs, found.problems) == ((("other", "WINNER"),), ())
        found = plan_of("other", *rules, users=(users,), facts=facts)
        assert (found.needs, found.problems) == ((), ())


# --- what may be done: the one gate -------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "grade", "allowed"),
    [
        ("off", "automatic", (False, False, False)),
        ("observe", "automatic", (False, True, False)),
        ("warn", "automatic", (False, True, True)),
        ("fix", "automatic", (True, True, True)),
        ("fix", "opt-in", (True, True, True)),
        ("fix", "report", (False, True, True)),
        ("strict", "automatic", (True, True, True)),
        ("strict", "report", (False, True, True)),
    ],
)
def test_permit(mode, grade, allowed):
    permit = permit_for(mode, grade)
    assert (permit.acts, permit.looks, permit.tells) == allowed


def test_permit_is_switched_for_whoever_holds_it():
    held = Permit()
    held.switch(permit_for("fix"))
    assert (held.acts, held.looks, held.tells) == (True, True, True)
    held.switch(permit_for("observe"))
    assert (held.acts, held.looks, held.tells) == (False, True, False)
    held.switch(None)
    assert (held.acts, held.looks, held.tells) == (False, False, False)
