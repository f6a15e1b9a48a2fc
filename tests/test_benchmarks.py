"""The benchmarks run and report; how fast anything is, is not for tests to say."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import sys
from pathlib import Path

import pytest

RATIO = re.compile(r"(\S+) \[(\S+) \.\. (\S+)\]")


@pytest.fixture
def harness(monkeypatch, root):
    monkeypatch.syspath_prepend(str(root))
    return importlib.import_module("benchmarks.harness")


@pytest.fixture
def subjects(monkeypatch, root):
    monkeypatch.syspath_prepend(str(root))
    return importlib.import_module("benchmarks.subjects")


@pytest.mark.incidents
def test_every_row_is_printed_with_finite_ratios(child, root, subjects):
    done = child.command(
        *(sys.executable, "-m", "benchmarks", "--quick"), env={"PYTHONPATH": str(root)}, timeout=300
    )
    lines = done.stdout.splitlines()
    for group in subjects.groups(Path("not used"), 100, 300, 1):
        assert lines.count(group.title) == 1
        first = lines.index(group.title) + 1
        for row, line in zip(group.rows, lines[first:]):
            assert line.startswith(row.what), f"not the line of {row}: {line}"
            assert row.peer_label in line
            if "is not installed" in line or "does not work here" in line:
                continue
            figures = [float(figure) for figure in RATIO.search(line).groups()]
            assert all(math.isfinite(figure) and figure >= 0 for figure in figures), line
            median, low, high = figures
            assert low <= median <= high
            assert row.budget in line
            assert (" within " in line or " over " in line) == bool(row.budget)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="instructions are counted by valgrind")
def test_ratios_of_instructions_are_saved_and_compared(child, root, tmp_path):
    def count(*options):
        command = (sys.executable, "-m", "benchmarks", "--only", "start", *map(str, options))
        return child.command(*command, env={"PYTHONPATH": str(root)}, timeout=300, check=False)

    file = tmp_path / "ratios.json"
    assert count("--save", file).returncode == 0
    ratios = json.loads(file.read_text())
    assert ratios.keys() == {"start", "start: memory"}
    for was, status in ((ratios["start"], 0), (ratios["start"] / 1.1, 1)):
        file.write_text(json.dumps({"start": was}))
        done = count("--compare", file)
        assert (done.returncode, "RISEN" in done.stdout) == (status, bool(status))
        assert f"was {was:.4f}x" in done.stdout


def test_rounds_are_interleaved_and_the_first_is_discarded(harness):
    group = harness.Group("g", (harness.Subject("a", ()), harness.Subject("b", (), repeat=2)), ())
    calls = []

    def run(subject):
        calls.append(subject.name)
        return {"cpu": float(len(calls)), "other": 1.0}

    series = harness.measure(group, 2, run)
    assert "".join(calls) == "ab" + "bba" + "abb"
    assert series == {
        "a": [5.0, 6.0],
        "a:other": [1.0, 1.0],
        "b": [3.5, 7.5],
        "b:other": [1.0, 1.0],
    }
