"""Version ranges: what counts as inside, and which of two requirements is narrower."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from cudaguard.system.facts import clauses, in_range, requirement_met


@pytest.mark.parametrize(
    ("version", "specifier", "inside"),
    [
        ("0.6.0", "<=0.6.0", True), ("0.6", "==0.6.0", True), ("0.6.1", "<=0.6.0", False),
        ("2.1.0+cu121", "==2.1.0", True), ("2.1.0+cu121", ">=2.1.0", True),
        ("2.1.0+cu121", "<2.1.0", False), ("2.0.0rc1", ">=1.0", True),
        ("2.0.0rc1", ">=2.0", False), ("2.0.0.dev20260101", ">=1.9", True), ("1!2.0", ">=3", True),
        ("1.0", "", True), ("1.0rc1", "", True), ("banana", ">=0", False), ("banana", "", False),
        ("", ">=0", False), ("1.2.3-custom build", ">=0", False),
    ],
)  # fmt: skip
def test_installed_version_and_range(version, specifier, inside):
    assert in_range(version, specifier) is inside


@pytest.mark.parametrize(
    ("requirement", "installed", "met"),
    [
        ("decord<=0.6.0", {"decord": "0.6.0"}, True),
        ("decord<=0.6.0", {"decord": "0.7.0"}, False),
        ("decord<=0.6.0", {}, False),
        ("decord", {"decord": "9"}, True),
        ("decord", {"decord": "banana"}, True),
        ("decord>0", {"decord": "banana"}, False),
        ("decord; python_version > '3'", {"decord": "1"}, True),
        ("decord; python_version < '3'", {"decord": "1"}, False),
        ("decord[extra]>=1", {"decord": "1"}, True),
    ],
)
def test_requirement_against_what_is_installed(requirement, installed, met):
    assert requirement_met(requirement, installed.get) is met


def test_what_is_not_installed_and_plain_numbers_need_no_parser(child):
    code = """
        import sys
        from cudaguard.system.facts import requirement_met
        print(requirement_met("decord[extra]<=0.6; python_version > '3'", lambda name: print(name)))
        print(requirement_met("torch>=2,<3", {"torch": "2.1.0+cu121"}.get))
        print("packaging" in sys.modules)
        """
    assert child.python(code).stdout.split() == ["decord", "False", "True", "False"]


def test_narrower_requirements_count_more():
    order = ["x", "x>=1", "x>=1,<2", "x>=1,<2,!=1.5", "x==1.0"]
    counts = [clauses(requirement) for requirement in order]
    assert counts == sorted(set(counts))
    assert clauses("x===1.0") == clauses("x==1.0")


NUMBERS = st.lists(st.sampled_from("0123"), min_size=1, max_size=3).map(".".join)
CLAUSE = st.tuples(st.sampled_from(["==", "!=", "<=", ">=", "<", ">"]), NUMBERS).map("".join)


@given(NUMBERS | st.text(max_size=15), st.sampled_from(["", "+cu121", "rc1"]), CLAUSE, CLAUSE)
@example("2.1", "", "==2.1.*", "!=2.0.*")
def test_numbers_are_compared_as_packaging_does(version, end, clause, other):
    try:
        known = Version(f"{version}{end}")
    except InvalidVersion:
        assert not in_range(f"{version}{end}", clause)
    else:
        expected = SpecifierSet(f"{clause}, {other}").contains(known, prereleases=True)
        assert in_range(f"{version}{end}", f"{clause}, {other}") is expected
