"""The report on a real driver (`benchmarks.gpu_facts`): it reaches its end whatever fails in it."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from .program import on_both_drivers

OF_THE_DRIVER = ("machine", "probe", "costs", "forks", "variables")


@pytest.fixture
def facts(monkeypatch, root):
    monkeypatch.syspath_prepend(str(root))
    return importlib.import_module("benchmarks.gpu_facts")


def test_every_question_is_a_program_and_stands_on_a_line_of_its_own(facts):
    for question in facts.QUESTIONS:
        compile(question.code, question.what, "exec")
        assert "tell(" in question.code
    lines = [(question.group, question.what) for question in facts.QUESTIONS]
    assert len(set(lines)) == len(lines)


@on_both_drivers
def test_what_the_driver_alone_can_tell(program, facts, root):
    command = [sys.executable, "-m", "benchmarks.gpu_facts", "--json"]
    for group in OF_THE_DRIVER:
        command += ["--only", group]
    env = {**program.variables(), "PYTHONPATH": str(root)}
    done = program.child.command(*command, env=env, timeout=600)
    report = json.loads(done.stdout)
    assert {"date", "python", "machine"} < set(report)
    asked = [q.what for q in facts.QUESTIONS if q.group in OF_THE_DRIVER]
    assert [row["what"] for row in report["rows"]] == asked
    answers = {row["what"]: row["answer"] for row in report["rows"] if "answer" in row}
    # torch is a matter of what is installed, and the stub has no modules to load.
    silent = [what for what in asked if what not in answers]
    if not program.is_real:
        silent = [what for what in silent if not what.startswith("CUDA_MODULE_LOADING")]
    assert [what for what in silent if what != "torch"] == []
    assert answers["current context before and after retain"] == {"before": None, "after": None}
    assert answers["nvmlInit"] == {"before": 3, "after": 3}
    assert answers["what the driver is asked before cuInit"]["after"] == 3
    of_child = "; the driver in a child"
    assert answers[f"nvmlInit{of_child}"] == {"child": "cuDeviceGetCount 3, cuInit 0"}
    assert answers[f"cuInit{of_child}"] == {"child": "cuDeviceGetCount 3, cuInit 3"}
    assert all(answers[what]["us"] > 0 for what in answers if what.startswith("one look"))
