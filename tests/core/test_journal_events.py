"""The journal as typed events: what each line stands for, whatever a program has written to it."""

from __future__ import annotations

import json

import pytest

from cudaguard.core.dispatch import Dispatch
from cudaguard.core.findings import Finding
from cudaguard.core.reports import PREREQUISITE, Repaired
from cudaguard.tools.run.record import (
    Begun,
    CudaUsed,
    Found,
    Mapped,
    ModeSet,
    Over,
    ProcessEnded,
    Raised,
    Started,
    read_events,
    typed,
)


def event(kind, name="", details=None):
    line = {"pid": 1, "kind": kind, "name": name, "thread": 2, "where": "a.py:1", "time": 3.0}
    (read,) = typed([{**line, "details": details} if details is not None else line])
    assert read[:4] == (1, 2, 3.0, "a.py:1")
    return read.event


FINDING = Finding("CG812", "It is there.", severity="error", evidence=("x", "y"), links=("z",))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("start", "python", {"parent": 7, "program": ["a.py"]}), Started(7, ("a.py",))),
        (("start", "python"), Started(None, ())),
        (("end",), ProcessEnded()),
        (("install", "fix"), ModeSet("fix")),
        (("uninstall", "off"), ModeSet("off")),
        (("import", "a", {"importing": ["b"]}), Begun("import", "a", "", ("b",))),
        (("mapping", "/a.so", {"module": "a"}), Begun("load", "a", "/a.so", ())),
        (("mapping", "/a.so"), Begun("load", "", "/a.so", ())),
        (("imported", "a"), Over(("import",), "a", is_failed=False)),
        (("loaded", "/a.so"), Over(("load",), "/a.so", is_failed=False)),
        (("failed", "a"), Over(("import", "load"), "a", is_failed=True)),
        (("mapped", "/b.so", {"by": "/a.so"}), Mapped("/b.so", "/a.so")),
        (
            ("cuda", "a did it", {"kind": "context", "actor": "a", "how": "load", "device": 1}),
            CudaUsed("context", "a did it", "a", "load", 1),
        ),
        (("finding", "CG812 It is there.", FINDING.to_dict()), Found(FINDING)),
        (
            ("error", "E: x", {"stack": [["a.py", 1, "f"]], "finding": FINDING.to_dict()}),
            Raised("E: x", (("a.py", 1, "f"),), FINDING),
        ),
        (("environment", "A changed"), None),
    ],
)
def test_line_is_what_it_stands_for(line, expected):
    assert event(*line) == expected


@pytest.mark.parametrize("verb", ["load_local", PREREQUISITE])
def test_repair_is_read_as_it_was_told(tmp_path, verb):
    """Rule, verb and subject are data: names may look like anything."""
    core, path = Dispatch(), tmp_path / "journal"
    core.journal.write_to(str(path))
    done = Repaired("LOCAL1", verb, "CG001 load_local x: y by CG002", "kept by CG003")
    core.reporter.repaired(done.rule, done.verb, done.subject, done.how)
    (line,) = read_events(str(path))
    assert line.event == done
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
    kinds = ("start", "import", "mapping", "mapped", "repair", "prerequisite", "finding", "cuda")
    for kind in (*kinds, "error", "end", "install", "anything"):
        found = event(kind, "name", details)
        json.dumps(found if isinstance(found, tuple) and kind not in ("finding", "error") else "")
    assert event("repair", "name", details) == Repaired("", "repair", "name", "")
    assert event("finding", "name", details).finding == Finding("", "name")
    assert event("error", "name", details) == Raised("name", (), None)
