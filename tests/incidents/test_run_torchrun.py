"""``cudaguard run torchrun``: one report for the job, about the rank that died first."""

from __future__ import annotations

import json
import os
import sys

import pytest

from .pins import TORCH

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="supervised on Linux"),
]

PROGRAM = """
import ctypes, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("total", total.item(), "guarded", "cudaguard.api" in sys.modules, flush=True)

def step():
    if dist.get_rank() == 1 and "die" in sys.argv:
        ctypes.string_at(0)
    dist.barrier()

step()
dist.destroy_process_group()
"""


@pytest.fixture
def torchrun(child, cached_environment):
    """Runs two ranks by the torchrun of an environment that lacks cudaguard."""
    scripts = os.path.dirname(cached_environment(*TORCH))
    program = child.write("train.py", PROGRAM)

    def torchrun(*arguments):
        report = child.folder / "report.json"
        job = ("torchrun", "--standalone", "--nproc-per-node", "2", program, *arguments)
        done = child.command(
            *(sys.executable, "-m", "cudaguard", "run", "--report", report, *job),
            env={"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
            timeout=300,
            check=False,
        )
        return done, json.loads(report.read_text(encoding="utf-8"))

    return torchrun


def test_ranks_that_end_well_are_guarded_and_nothing_is_said(torchrun):
    done, document = torchrun()
    assert (done.returncode, document["ended"]["status"]) == (0, 0)
    assert done.stdout == "total 2.0 guarded True\n" * 2
    assert "cudaguard" not in done.stderr


def test_rank_that_segfaults_is_named_with_its_stack(torchrun):
    done, document = torchrun("die")
    assert done.returncode == 1
    process = document["process"]
    assert (process["rank"], process["ranks"], process["is_program"]) == (1, 2, False)
    before, _, text = done.stderr.partition("\ncudaguard run: ")
    assert text.startswith(f"rank 1 of 2 (process {process['pid']}) crashed with SIGSEGV")
    assert "train.py:13 in step: ctypes.string_at(0)" in text
    # torchrun's own account says the same, and is not explained by "use cudaguard run".
    assert f"exitcode  : -11 (pid: {process['pid']})" in before
    assert "cudaguard [" not in before
