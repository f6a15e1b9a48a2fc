"""The table of all features: up to date, whole, and each thing in it once."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

import cudaguard
from cudaguard import errors
from cudaguard.core.checks import Check
from cudaguard.core.explain import explainers
from cudaguard.core.rule_check import declared
from cudaguard.core.table import table
from cudaguard.features import _index as index

# Arguments of a repair, where it is not one.
MORE = {"choosing": 2, "lacking": 2, "needing": 2, "opening": 3}
GUIDE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOMENTS, EVENTS = (re.findall(rf"\n\| `(\w+)` \| {kind} ", GUIDE) for kind in ("moment", "event"))
REPAIRS = sorted(
    {(moment, entry) for entries in index.VERBS.values() for moment, entry in entries.items()}
)


@pytest.fixture(scope="module")
def make_index(root):
    return runpy.run_path(str(root / ".ci" / "make_index.py"))


def test_index_is_what_the_features_say(make_index):
    written = make_index["INDEX"].read_text(encoding="utf-8")
    assert written == make_index["index"](), "run: python .ci/make_index.py"
    assert written != make_index["index"]().replace("CG001", "CG999")


@pytest.mark.parametrize(("moment", "entry"), REPAIRS)
def test_repair_is_there_and_can_be_called_at_its_moment(moment, entry):
    assert moment in MOMENTS
    found = inspect.signature(table.resolve(entry))
    found.bind(*[object()] * MORE.get(moment, 1))


@pytest.mark.parametrize(("entry", "events"), index.DETECTORS)
def test_detector_has_a_method_for_each_event(entry, events):
    kind = table.resolve(entry)
    for event in events:
        name = event.partition(":")[0]
        assert name in EVENTS
        assert callable(getattr(kind, name, None)), event
    public = {name for name in vars(kind) if name in EVENTS}
    assert public == {event.partition(":")[0] for event in events}, "a method that nobody calls"


class Misspelled:
    def load_faild(self, error, library): ...


def test_misspelled_event_is_not_passed_over(make_index):
    with pytest.raises(SystemExit, match="no event 'load_faild'; did you mean 'load_failed'"):
        make_index["events_of"](f"{__name__}:Misspelled", ())


def test_each_is_listed_once():
    rules = Counter(row[0] for row in index.RULES)
    detectors = Counter(entry for entry, _ in index.DETECTORS)
    assert {*rules.values(), *detectors.values()} == {1}
    assert not set(rules) & set(index.IDS)
    assert set(index.VERBS) == set(index.CATEGORIES) >= set(declared())


def test_categories_are_warnings_of_ours():
    names = set(index.IDS.values()) | set(index.CATEGORIES.values())
    for name in names - {""}:
        assert issubclass(getattr(errors, name), errors.CudaGuardWarning)


def test_known_errors_and_prerequisites_are_there():
    assert all(explainer.known for explainer in explainers())
    for entry in index.PREREQUISITES.values():
        assert callable(table.resolve(entry))


def test_checks_are_there_under_their_ids():
    for id, entry in index.CHECKS.items():
        assert isinstance(table.resolve(entry), Check)
        assert table.resolve(entry).id == id


def test_ids_are_written_where_they_are_declared():
    messages = {entry.id for explainer in explainers() for entry in explainer.known}
    declared, loose = [], []
    for path in Path(cudaguard.__file__).parent.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        places = [one.args[0] for one in calls if ast.unparse(one.func) in ("Kind", "_kind")]
        places += [word.value for one in calls for word in one.keywords if word.arg == "id"]
        for node in nodes if path.name != "_index.py" else ():
            if isinstance(node, ast.Constant) and re.fullmatch(r"CG\d{3}", str(node.value)):
                (declared if node in places else loose).append(node.value)
    assert set(loose) <= messages  # that are declared in a known_errors.ini
    assert set(index.CHECKS) < set(declared)
    assert len(declared) == len(set(declared))
