"""What ``coverage.toml`` claims about public incidents: ids and tests that exist."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cudaguard
from cudaguard.tools.explain import RULES, ids

from .test_words import SPELLING, WORDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = tomllib.loads(Path(__file__).with_name("coverage.toml").read_text(encoding="utf-8"))
GRADES, PROOFS = TABLE["grades"], TABLE["proofs"]
GRADE_OF = {rule.id: rule.grade for rule in RULES}
FUNCTIONS = {name for name in cudaguard.__all__ if name[0].islower()}
KNOWN = {*ids(), *FUNCTIONS}
# Kept without being enabled where the program imports both (see `core.import_plan`).
ORDERS = {rule.id for rule in RULES if rule.needs}
# What may answer with this grade: a rule of that grade, or a function that is called.
REPAIRS = {
    # These bind libraries to their own symbols, whatever rules know.
    "prevented": {id for id, grade in GRADE_OF.items() if grade == "automatic"}
    | ORDERS
    | {"CG812", "CG813", "CG827"},
    "prevented-on-request": {id for id, grade in GRADE_OF.items() if grade == "opt-in"} | FUNCTIONS,
}
NODE = re.compile(r"(?P<file>tests/[\w/]+\.py)::(?P<name>test_\w+)(?P<case>\[.+\])?")


class Incident(NamedTuple):
    """One entry; `coverage.toml` says what its fields are."""

    id: str
    ref: str
    expected: str
    grade: str
    by: Any = ()
    proof: str = "none"
    test: str = ""
    reason: str = ""


INCIDENTS = [Incident(**entry) for entry in TABLE["incident"]]


def fault_of_test(node, root):
    """Returns what is wrong with the name of a test; empty if there is such a test."""
    if (found := NODE.fullmatch(node)) is None:
        return f"not the name of a test: {node}"
    path = root / found["file"]
    if not path.is_file():
        return f"no such file: {path.name}"
    for one in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(one, ast.FunctionDef) and one.name == found["name"]:
            marks = " ".join(map(ast.unparse, one.decorator_list))
            return "" if not found["case"] or "parametrize" in marks else f"no cases: {node}"
    return f"no such test: {found['name']}"


def faults_of(one, root):
    """Yields what is wrong with one entry."""
    if not re.fullmatch(r"I\d{3}", one.id):
        yield f"not an id: {one.id}"
    if not re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", one.ref):
        yield f"not a reference: {one.ref}"
    for grade in (one.expected, one.grade):
        if grade not in GRADES:
            yield f"unknown grade: {grade}"
    for id in one.by:
        if id not in KNOWN:
            yield f"unknown id: {id}"
    if len(set(one.by)) < len(one.by):
        yield "an id is named twice"
    if bool(one.by) != (one.grade != "none"):
        yield "an answer and no grade, or a grade and no answer"
    if one.grade in REPAIRS and not REPAIRS[one.grade] & set(one.by):
        yield f"nothing named is {one.grade}"
    if one.proof not in PROOFS:
        yield f"unknown proof: {one.proof}"
    if bool(one.test) != (one.proof != "none"):
        yield "a test and no proof, or a proof and no test"
    if one.test and (fault := fault_of_test(one.test, root)):
        yield fault
    if not one.reason and "none" in (one.proof, one.grade):
        yield "no reason"
    for pattern in (WORDS, SPELLING):
        yield from (f"reason: {found[0]!r}" for found in pattern.finditer(one.reason))


def faults(found, root):
    """Returns what is wrong with a table of incidents, each with the id of its entry."""
    told = [f"{one.id}: {fault}" for one in found for fault in faults_of(one, root)]
    for name in ("id", "ref"):
        values = [getattr(one, name) for one in found]
        twice = {value for value in values if values.count(value) > 1}
        told += [f"{value}: there twice" for value in sorted(twice)]
    return told


def test_entries_name_what_exists(root):
    assert faults(INCIDENTS, root) == []


def test_order_is_that_of_the_ids():
    assert [one.id for one in INCIDENTS] == sorted(one.id for one in INCIDENTS)


HERE = "tests/test_coverage.py::test_entries_name_what_exists"
GOOD = {
    "id": "I001", "ref": "a/b#1", "expected": "told", "grade": "told", "by": ["CG818"],
    "proof": "real", "test": HERE, "reason": "",
}  # fmt: skip
PLANTED = {
    "not an id: 1": {"id": "1"},
    "not a reference: b#1": {"ref": "b#1"},
    "unknown grade: perhaps": {"grade": "perhaps"},
    "unknown grade: certain": {"expected": "certain"},
    "unknown id: CG799": {"by": ["CG799"]},
    "unknown id: no_function": {"by": ["no_function"]},
    "an id is named twice": {"by": ["CG818", "CG818"]},
    "an answer and no grade, or a grade and no answer": {"by": []},
    "nothing named is prevented": {"grade": "prevented"},
    "nothing named is prevented-on-request": {"grade": "prevented-on-request", "by": ["CG001"]},
    "unknown proof: word of honor": {"proof": "word of honor"},
    "a test and no proof, or a proof and no test": {"test": ""},
    "not the name of a test: test_x": {"test": "test_x"},
    "no such file: test_nothing.py": {"test": "tests/tools/test_nothing.py::test_x"},
    "no such test: test_x": {"test": "tests/test_coverage.py::test_x"},
    f"no cases: {HERE}[one]": {"test": f"{HERE}[one]"},
    "no reason": {"proof": "none", "test": ""},
    "reason: 'serves'": {"reason": "Another library serves it."},
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_seen(root, fault):
    assert faults([Incident(**GOOD)], root) == []
    assert faults([Incident(**{**GOOD, **PLANTED[fault]})], root)[0].endswith(f": {fault}")
