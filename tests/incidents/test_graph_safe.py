"""Compiled callables whose results are overwritten: a real torch without CUDA, real compilations.

A graph that is replayed writes to the same memory without counting a version; so does a stand-in
here, and what is held of its results must change without protection. The cases are functions in
``tests/features/cuda_graphs/cases``; each of its files is run in one process, in which torch is
imported once.
"""

from __future__ import annotations

import ast
import json
import shutil
import sys
from pathlib import Path

import pytest

from .marks import ON_LINUX
from .pins import TORCH

CASES = Path(__file__).resolve().parent.parent / "features" / "cuda_graphs" / "cases"
ON = "TORCHINDUCTOR_CUDAGRAPHS"

pytestmark = [
    *ON_LINUX,
    pytest.mark.skipif(
        sys.version_info < (3, 11),
        reason="errors can have notes from Python 3.11 on, and dataclasses slots from 3.10 on",
    ),
]


def cases(name):
    tree = ast.parse((CASES / f"{name}.py").read_text(encoding="utf-8"))
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")
    ]


@pytest.fixture(scope="module")
def outcome(cached_environment, root, tmp_path_factory):
    """Returns what went wrong in one case of a file; the file is run at the first."""
    from ..conftest import Child

    ran = {}

    def outcome(file, case, **variables):
        key = (file, *variables.items())
        if key not in ran:
            child = Child(tmp_path_factory.mktemp(file))
            env = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", **variables}
            env["TORCHINDUCTOR_CACHE_DIR"] = str(child.folder / "cache")
            python = cached_environment(*TORCH)
            run = child.command(python, CASES / "run.py", file, env=env, timeout=240, check=False)
            outcomes = dict(map(json.loads, run.stdout.splitlines()))
            ran[key] = outcomes, f"status {run.returncode}\n{run.stderr}"
        outcomes, rest = ran[key]
        assert case in outcomes, f"it has not ended: {rest}"
        return outcomes[case]

    return outcome


def parameters(*files):
    return [
        pytest.param(
            file,
            case,
            id=f"{file}-{case[len('case_') :]}",
            marks=[pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler")]
            if "inductor" in case
            else [],
        )
        for file in files
        for case in cases(file)
    ]


@pytest.mark.parametrize(
    ("file", "case"), parameters("copies", "modules", "use", "rules", "errors")
)
def test_case(outcome, file, case):
    assert outcome(file, case) == ""


@pytest.mark.parametrize(("file", "case"), parameters("use"))
def test_case_with_graphs_on_by_default(outcome, file, case):
    assert outcome(file, case, **{ON: "1"}) == ""


FIRST = """
    import cudaguard

    cudaguard.install(enable=["CG028"])
    from torch import compile

    import torch

    assert compile is torch.compile
    print(torch.compile.__wrapped__.__module__)
    cudaguard.uninstall()
    print(torch.compile.__module__, hasattr(torch.compile, "__wrapped__"))
"""


def test_guard_that_is_installed_before_torch(child, cached_environment, root):
    python = cached_environment(*TORCH)
    done = child.python(FIRST, python=str(python), env={"PYTHONPATH": str(root)}, timeout=240)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["torch", "torch False"]
