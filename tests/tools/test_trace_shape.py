"""Damaged traces: one look at the shape, which agrees with a real validator, keeps out the rest."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path

import fastjsonschema
import pytest

import cudaguard
from cudaguard.tools.main import main
from cudaguard.tools.trace.shape import misfit

SCHEMA = json.loads(
    (Path(cudaguard.__file__).parent / "tools" / "schema" / "trace.json").read_text("utf-8")
)
VALUES = [
    None, True, False, 0, -1, 1e308, float("inf"), float("nan"), 10**400, "", "x" * 5000, "\ud800",
    "\x00", "\n", [], {}, [[]], [None], "../../x", [1, "a"], -0.5, "NaN",
]  # fmt: skip


def step(kind, state="moment", seconds=None, **more):
    told = {
        "kind": kind, "name": "m", "at": 0.1, "seconds": seconds, "state": state, "depth": 0,
        "thread": 0, "where": "a.py:1", "file": "", "importing": ["m"], "is_guards": False,
        "mapped": [],
    }  # fmt: skip
    return {**told, **more}


@pytest.fixture
def document():
    library = {
        "file": "/lib/x.so", "name": "x.so", "package": "", "version": "", "build": "",
        "bytes": 10,
    }  # fmt: skip
    steps = [
        step("start", mapped=[library]),
        step("import", "done", 0.5),
        step("extension", "done", 0.1, file="/lib/x.so", depth=1, mapped=[library]),
        step("library", "done", 0.1, file="/lib/y.so", mapped=[{**library, "bytes": None}]),
        step("import", "unfinished"),
        step("cuda", what="initialized", actor="m", how="import", device=-1),
        step("finding", id="CG801", severity="warning", consequence="c", remedy="r"),
        step("repair"),
    ]
    process = {
        "pid": 1, "parent": None, "program": ["a.py"], "mode": "observe", "began": 0.0,
        "ended": 1.5, "is_program": True, "steps": steps,
    }  # fmt: skip
    other = {**process, "pid": 2, "parent": 1, "is_program": False, "ended": None, "steps": steps}
    return {
        "schema": 1, "tool": "trace", "version": "1", "python": "3.11", "platform": "linux",
        "program": ["a.py"], "mode": "observe", "seconds": 2.0,
        "ended": {"kind": "signal", "status": 139, "signal": "SIGSEGV", "stack": ["a.py:1 in f"]},
        "command": "cudaguard run a.py",
        "summary": {"libraries": 1, "bytes": 10, "imports": 2, "initializer": "m", "findings": 1,
                    "died_in": "m"},
        "processes": [process, other],
    }  # fmt: skip


def damaged(document, chance):
    """Return a copy in which some values are gone or exchanged for others."""
    found = copy.deepcopy(document)
    for _ in range(chance.choice([1, 1, 2, 5])):
        here = found
        for _ in range(6):
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            if not keys:
                break
            key = chance.choice(keys)
            if here[key] and isinstance(here[key], (dict, list)) and chance.random() < 0.8:
                here = here[key]
                continue
            if key not in ("tool", "schema"):
                if isinstance(here, dict) and chance.random() < 0.15:
                    del here[key]
                else:
                    here[key] = copy.deepcopy(chance.choice(VALUES))
            break
    return found


def test_the_verdict_is_that_of_a_real_validator(document):
    chance = random.Random(8)
    validate = fastjsonschema.compile(SCHEMA)
    verdicts = {True: 0, False: 0}
    assert misfit(document, SCHEMA) == ""
    for _ in range(400):
        data = damaged(document, chance)
        try:
            validate(data)
        except fastjsonschema.JsonSchemaException:
            is_valid = False
        else:
            is_valid = True
        assert (misfit(data, SCHEMA) == "") is is_valid, misfit(data, SCHEMA)
        verdicts[is_valid] += 1
    assert min(verdicts.values()) > 20


SHOWN = (("--show", "T"), ("--show", "T", "--only", "native"), ("--show", "T", "-o", "O.svg"),
         ("--show", "T", "-o", "O.html"), ("--diff", "T", "G"), ("--diff", "G", "T"))  # fmt: skip


def test_damaged_traces_are_shown_or_refused(document, tmp_path, capsys, monkeypatch):
    """Never a traceback: status 0 or 1, or one line that names the file and the place."""
    monkeypatch.chdir(tmp_path)
    Path("G").write_text(json.dumps(document))
    chance = random.Random(8)
    statuses = set()
    for number in range(300):
        Path("T").write_text(json.dumps(damaged(document, chance)))
        status = main(["trace", *SHOWN[number % len(SHOWN)]])
        err = capsys.readouterr().err
        assert (status == 2) is err.startswith("cudaguard trace: T: ")
        assert err.count("\n") == (2 if status == 2 else 0)
        statuses.add(status)
    assert statuses == {0, 1, 2}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["processes"][0]["steps"][3].update(at=None),
         r"processes\[0\]\.steps\[3\]\.at: expected number, got null"),
        (lambda d: d["processes"][1].pop("pid"),
         r"processes\[1\]: expected the key 'pid', got none"),
        (lambda d: d["ended"].update(kind="dead"),
         'ended.kind: expected one of "exited", "signal", "timeout", got "dead"'),
        (lambda d: d.update(seconds=1e300), "seconds: expected a number from .*, got 1e[+]300"),
        (lambda d: d.update(seconds=float("nan")), "no JSON: NaN is no number"),
        (lambda d: d["processes"][0]["steps"][1].update(seconds=None),
         r"steps\[1\]\.seconds: expected number, got null"),
        (lambda d: d["processes"][0]["steps"][5].pop("actor"), "expected the key 'actor'"),
        (lambda d: d["processes"][0].update(steps={}), "steps: expected array, got an object"),
        (lambda d: d["processes"][0].update(ended="x" * 99),
         'processes.0..ended: expected number, got "x{59}[.]{3}'),
    ],
)  # fmt: skip
def test_what_is_told_of_a_damaged_trace(document, tmp_path, capsys, change, told):
    change(document)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    assert main(["trace", "--show", str(path)]) == 2
    assert re.search(f"trace.json: .*{told}", capsys.readouterr().err)


def test_keys_of_a_later_release_are_let_be(document):
    document["processes"][0]["steps"][0]["later"] = 1
    assert misfit(document, SCHEMA) == ""
