"""``cudaguard run`` names a real crash: tensorflow's LLVM serves triton, which aborts."""

from __future__ import annotations

import json
import os
import re
import signal

from .marks import ON_LINUX
from .pins import TENSORFLOW
from .test_tensorflow_triton import QUIET

pytestmark = ON_LINUX

PROGRAM = '''\
"""Trains something."""
import tensorflow
import triton._C.libtriton
print("both are there")
'''


def test_report_names_import_libraries_rule_remedy_and_command(child, cached_environment, root):
    python = cached_environment(*TENSORFLOW)
    env = {**QUIET, "PYTHONPATH": str(root)}
    script = child.write("train.py", PROGRAM)
    report = child.folder / "report.json"
    options = ("--mode", "observe", "--report", report)
    done = child.command(
        *(python, "-m", "cudaguard", "run", *options, script),
        env=env, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGABRT
    assert "registered more than once" in done.stderr  # its own words come first
    text = done.stderr.partition("\ncudaguard run: ")[2]
    document = json.loads(report.read_text(encoding="utf-8"))
    names = [(step["kind"], step["name"]) for step in document["running"]]
    assert names[0] == ("import", "triton")
    assert names[-1] == ("load", "triton._C.libtriton")
    (rule,) = document["rules"]
    assert (rule["id"], rule["is_certain"]) == ("CG002", True)
    libraries = {os.path.basename(file).partition(".")[0] for file in rule["libraries"]}
    assert {"libtensorflow_cc", "libtensorflow_framework"} <= libraries
    for words in (
        "crashed (SIGABRT) while importing triton._C.libtriton, at triton/",
        "running: import triton at ",
        "in it load triton._C.libtriton from triton/_C/libtriton.so",
        f"{script}:3 in <module>: import triton._C.libtriton",
        "CG002 fits: tensorflow exposes its LLVM to every library loaded after it, and triton",
        "in the global symbol scope were tensorflow/libtensorflow_",
        "fix: run it in mode fix, or put `import cudaguard; cudaguard.install()` first: CG002",
        f"run: cudaguard bisect {script}",
    ):
        assert words in text, words
    # It cures it, under plain Python.
    script.write_text(f"import cudaguard; cudaguard.install()\n{PROGRAM}", encoding="utf-8")
    cured = child.command(python, script, env=env, timeout=300)
    assert cured.stdout == "both are there\n"


def test_guarded_it_works_and_the_repair_is_said(child, cached_environment, root):
    python = cached_environment(*TENSORFLOW)
    env = {**QUIET, "PYTHONPATH": str(root)}
    script = child.write("train.py", PROGRAM)
    done = child.command(python, "-m", "cudaguard", "run", script, env=env, timeout=300)
    assert done.stdout == "both are there\n"
    said = [line for line in done.stderr.splitlines() if "cudaguard" in line]
    repaired = "extension modules of tensorflow: kept in local symbol scope (CG002)"
    assert said == [f"cudaguard run: repaired 1 fault: {repaired}"]


def test_document_shows_what_is_printed(child, cached_environment, root):
    """All lines of the example, but for the seconds."""
    page = root / "docs" / "reference" / "commands" / "run.md"
    section = page.read_text(encoding="utf-8")
    code = re.search(r"^```python\n# predict.py\n(.*?)^```$", section, re.DOTALL | re.M)[1]
    shown = re.search(r"^```text\n(.*?)^```$", section, re.DOTALL | re.M)[1]
    child.write("predict.py", code)
    python = cached_environment(*TENSORFLOW)
    done = child.command(
        *(python, "-m", "cudaguard", "run", "--mode", "observe", "predict.py"),
        env={**QUIET, "PYTHONPATH": str(root)}, timeout=300, check=False,
    )  # fmt: skip
    printed = done.stderr.replace(str(child.folder), "/home/me")

    def settled(text):
        return re.sub(r"after [\d.]+ s", "after S s", text).partition("\ncudaguard run")[2]

    assert settled(printed) == settled(shown)
