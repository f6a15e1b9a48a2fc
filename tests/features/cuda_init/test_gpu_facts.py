"""The report on a real driver (`benchmarks.gpu_facts`): it reaches its end whatever fails in it."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from .program import Program, on_both_drivers

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


STUB_WAITS = {
    "context and device of memory: allocated, and of a pool": {
        "plain": [True, False, 0],
        "pool": [False, True, 0],
    },
    "normalize waits for a pool's default stream, in a thread without a context": {
        "pending_before": False,  # nothing ever is, on the stub
        "pending_after": False,
        "current_after": None,
    },
    "default stream of the primary context waits for a stream of an own one": {
        "says": "reader",
        "own_default": False,
        "primary_default": False,
        "own_default_after": False,
    },
    "stream is waited for while another thread captures, mode of this one 0": {
        "synchronize": 900,
        "end_of_capture": 901,
    },
    "normalize while another thread captures": {
        "mode_after": 0,
        "end_of_capture": 0,
        "pending": False,
    },
    "context after cuDevicePrimaryCtxReset, and create_context() then": {
        "before": "initialized, contexts [0], current 0",
        "after_reset": "initialized, contexts [], current -1",
        "anew": True,
        "then": "initialized, contexts [0], current 0",
    },
    "stream that was destroyed, asked for its context in a child process": {
        "status": -6,
        "answer": "",
    },
}


def test_what_is_asked_of_waits(child, driver_stubs, facts, root):
    """On the stub, so that the questions are known to be right before there is a GPU."""
    program = Program(child, driver_stubs.wide())
    command = [sys.executable, "-m", "benchmarks.gpu_facts", "--json", "--only", "waits"]
    env = {**program.variables(), "PYTHONPATH": str(root)}
    report = json.loads(program.child.command(*command, env=env, timeout=600).stdout)
    answers = {row["what"]: row.get("answer") for row in report["rows"]}
    assert {what: answers[what] for what in STUB_WAITS} == STUB_WAITS
    silent = [what for what, answer in answers.items() if answer is None]
    assert [what for what in silent if "a kernel" not in what] == []
