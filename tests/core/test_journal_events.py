"""Lines of a journal: what each stands for, whatever a program has written to it."""

from __future__ import annotations

import json

import pytest

from cudaguard.core.dispatch import Dispatch
from cudaguard.core.findings import Finding
from cudaguard.core.reports import PREREQUISITE, Repaired
from cudaguard.tools.run.record import Line, Raised, read_events


def line(kind, name="", details=None):
    return Line(1, 2, 3.0, "a.py:1", kind, name, details or {})


FINDING = Finding("CG812", "It is there.", severity="error", evidence=("x", "y"), links=("z",))


def test_line_is_what_it_stands_for():
    start = line("start", "python", {"parent": 7, "program": ["a.py"], "rank": 0, "is_fork": True})
    assert (start.number("parent"), start.texts("program")) == (7, ("a.py",))
    assert (start.rank, start.is_fork, line("start").rank) == (0, True, None)
    assert (line("import", "a").module, line("import", "a").file) == ("a", "")
    load = line("mapping", "/a.so", {"module": "a"})
    assert (load.module, load.file, line("mapping", "/a.so").module) == ("a", "/a.so", "")
    assert line("finding", "CG812 It is there.", FINDING.to_dict()).finding() == FINDING
    error = line("error", "E: x", {"stack": [["a.py", 1, "f"]], "finding": FINDING.to_dict()})
    assert error.raised() == Raised("E: x", (("a.py", 1, "f"),), FINDING)
    ends = line("child", "12"), line("kill", "1" * 20), line("end", "12")
    assert [one.other for one in ends] == [12, 0, 0]


@pytest.mark.parametrize("verb", ["load_local", PREREQUISITE])
def test_repair_is_read_as_it_was_told(tmp_path, verb):
    """Rule, verb and subject are data: names may look like anything."""
    core, path = Dispatch(), tmp_path / "journal"
    core.journal.write_to(str(path))
    done = Repaired("LOCAL1", verb, "CG001 load_local x: y by CG002", "kept by CG003")
    core.reporter.repaired(done.rule, done.verb, done.subject, done.how)
    (read,) = read_events(str(path))
    assert read.repaired() == done
    assert core.reporter.changes == (f"{done.words} (stays)",)
    assert core.reporter.lasting == (done.words,)


@pytest.mark.parametrize(
    "details",
    [
        {},
        dict.fromkeys(("importing", "program", "stack", "evidence", "links", "finding"), 7),
        {key: ["x"] for key in ("rule", "verb", "subject", "how", "by", "module", "severity")},
        {"stack": [7, ["a"], ["a.py", "1", "f"]], "device": "1", "parent": True},
    ],
    ids=["none", "numbers", "lists", "parts"],
)
def test_details_that_a_program_has_written_do_no_harm(details):
    for kind in ("start", "import", "mapping", "mapped", "cuda", "install", "child"):
        read = line(kind, "name", details)
        assert (read.rank, read.is_fork, read.other, read.number("parent")) == (None, False, 0, 0)
        json.dumps([read.module, read.file, read.texts("importing"), read.repaired()])
    assert line("repair", "name", details).repaired() == Repaired("", "repair", "name", "")
    assert line("finding", "name", details).finding() == Finding("", "name")
    assert line("error", "name", details).raised() == Raised("name", (), None)
