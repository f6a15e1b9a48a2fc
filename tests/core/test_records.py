"""Records: immutable values that compare, copy, pickle and turn into plain data."""

from __future__ import annotations

import copy
import inspect
import json
import pickle

import pytest

from cudaguard import config
from cudaguard.core import settings as layers
from cudaguard.core.findings import Event, Finding, Status
from cudaguard.core.rule import Rule, Table
from cudaguard.core.rule_check import Entry

RULE = Rule(
    "R1", ("torch", "decord"), "Because.", title="Title", dist=("decord<=0.6.0",),
    when={"platform": ["linux"], "env": {"A": True}}, needs=("numpy",),
    actions=({"load_local": "lib*.so"},), grade="opt-in", links=("https://example.org",),
    fixed_in="1.0", verified="2026-01-01",
)  # fmt: skip
FINDING = Finding("R1", "What.", rule="R1", evidence=["one", "two"], links=("https://a.b",))
EVENT = Event("import", "torch", 1.5, 7, "a.py:3")
RECORDS = [
    RULE,
    Rule("R2", ("x",), "Because."),
    EVENT,
    FINDING,
    Status("fix", watched=("torch",), events=(EVENT,), findings=(FINDING,), rules=(RULE,)),
    Entry("torch", "plug:RULE", "plug-1.dist-info"),
    config.Settings("file", mode="fix", switches={"A": True}, plugins=False, tables=({"id": "x"},)),
    layers.Layer("fix", {"A": True}, ((RULE, "here"),)),
    layers.InForce("fix", {}, ((RULE, "here"),), "", True, "none", (), ()),
]
each = pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)


@each
def test_record_cannot_be_changed(record):
    for name in record._fields:
        with pytest.raises(AttributeError, match="read-only"):
            setattr(record, name, None)
        with pytest.raises(AttributeError, match="read-only"):
            delattr(record, name)
    with pytest.raises(AttributeError):
        record.something_else = 1


@each
def test_equal_records_have_equal_hashes_and_copies_are_equal(record):
    for twin in (
        record.replace(),
        copy.copy(record),
        copy.deepcopy(record),
        *(pickle.loads(pickle.dumps(record, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)),
    ):
        assert twin == record
        assert hash(twin) == hash(record)
        assert type(twin) is type(record)


@each
def test_replacing_a_field_gives_another_record_and_leaves_the_first(record):
    before = repr(record)
    for name in record._fields:
        other = record.replace(**{name: ("changed",)})
        assert other != record
        assert getattr(other, name) == ("changed",)
        assert {n: getattr(other, n) for n in record._fields if n != name} == {
            n: getattr(record, n) for n in record._fields if n != name
        }
    assert repr(record) == before
    with pytest.raises(TypeError):
        record.replace(no_such_field=1)


@each
def test_record_turns_into_json_and_shows_every_field(record):
    plain = record.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) == set(record._fields)
    for name in record._fields:
        assert f"{name}=" in repr(record)


def test_hash_does_not_depend_on_the_order_of_a_table():
    one = RULE.replace(when={"python": ">3", "machine": "x"})
    two = RULE.replace(when={"machine": "x", "python": ">3"})
    assert one == two
    assert hash(one) == hash(two)


@pytest.mark.parametrize(
    ("given", "named", "words"),
    [
        (("R",), {"watch": ()}, "Rule(): missing: 'why'"),
        (("R", (), "w"), {"wy": "w"}, "Rule(): unknown: 'wy'"),
        (("R", (), "w"), {"id": "S"}, "Rule(): given twice: 'id'"),
        (("R", (), "w", "title"), {}, "Rule(): too many arguments: 'title'"),  # only by name
        (("R",), {"wy": "w"}, "Rule(): unknown: 'wy'; missing: 'watch', 'why'"),
        (("R", (), "w"), {"_": 0}, "Rule(): unknown: '_'"),
    ],
)
def test_wrong_arguments_are_named(given, named, words):
    with pytest.raises(TypeError) as caught:
        Rule(*given, **named)
    assert str(caught.value) == words


def test_signature_is_shown_to_whoever_asks_for_help():
    assert str(inspect.signature(Event)) == (
        "(kind: 'str', name: 'str', time: 'float', thread: 'int', where: 'str' = '')"
    )
    assert "why: 'str', *, title: 'str' = ''" in str(inspect.signature(Rule))


def test_rule_that_a_remedy_shows_keeps_its_lines_and_nothing_else_does():
    rule = "save this rule:\n      [[rules]]\n      id = 'LOCAL1'"
    finding = Finding("CG812", "liba\nb.so", severity="error", remedy=f"{rule}\n[CG001] forged")
    *_, last, command = lines = str(finding).splitlines()
    assert lines[0] == "[CG812] liba\\nb.so"
    assert lines[1:3] == ["  fix: save this rule:", "      [[rules]]"]
    assert last == "      id = 'LOCAL1'\\n[CG001] forged"
    assert command == "  run: cudaguard explain CG812"


# --- the tables of a rule ------------------------------------------------------------------------

SOURCE = {"load_local": "a.so", "before": ["x", "y"], "deep": {"list": [1, [2]]}}
FROZEN = {"load_local": "a.so", "before": ("x", "y"), "deep": {"list": (1, (2,))}}


def test_rule_copies_its_tables_deeply():
    source = copy.deepcopy(SOURCE)
    when = {"platform": ["linux"], "env": {"A": True}}
    rule = Rule("R", ["x"], "w", needs={"y"}, actions=[source], when=when)
    assert (rule.watch, rule.needs) == (("x",), ("y",))
    source["before"].append("z")
    source["deep"]["list"][1].append(3)
    when["platform"].append("win32")
    when["env"]["B"] = False
    assert rule.actions == (FROZEN,)
    assert rule.when == {"platform": ("linux",), "env": {"A": True}}
    assert rule.to_dict()["actions"] == [SOURCE]
    assert rule.replace(id="S").actions[0] is rule.actions[0]


@pytest.mark.parametrize(
    ("change", "given"),
    [("update", [{"a": 1}]), ("setdefault", ["a", 1]), ("pop", ["names"]), ("popitem", []),
     ("clear", []), ("__setitem__", ["a", 1]), ("__delitem__", ["names"]), ("__ior__", [{"a": 1}])],
)  # fmt: skip
def test_table_of_a_rule_is_read_only(change, given):
    table = Table(SOURCE)
    for part in (table, table["deep"]):
        with pytest.raises(TypeError, match=r"read-only; change a copy, dict\(table\)"):
            getattr(part, change)(*given)
    assert table == FROZEN


def test_table_is_a_dictionary_for_everybody_else():
    table = Table(SOURCE)
    assert table == FROZEN == dict(table)
    assert json.loads(json.dumps(table)) == SOURCE
    for twin in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert twin == table
        assert type(twin) is type(twin["deep"]) is Table
    assert repr(table) == repr(FROZEN)
    assert {**table, "a": 1}["a"] == 1
    assert not hasattr(table, "__dict__")
