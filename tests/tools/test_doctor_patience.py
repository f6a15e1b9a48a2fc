"""``cudaguard doctor`` where a file does not answer: a dead disk."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ..dead_disk import dead_disk
from .doctor import DOCTOR
from .doctor import planted as planted

WAITS = "it has not ended within {} s; --timeout S gives it more"


@pytest.fixture
def stuck(planted):
    """The metadata of a distribution, which are on a dead disk."""
    planted.distribution("fine", "2.0")
    folder = planted.distribution("stuck")
    with dead_disk(folder):
        yield str(folder / "METADATA")


@pytest.mark.incidents
def test_metadata_on_a_dead_disk(planted, stuck, child):
    bundle = child.folder / "bundle.md"
    options = ("--timeout", "2", "--bundle", str(bundle), "--only", "CG905")
    status, out, err = planted.run(*options)
    assert status == 3
    title = "installed distributions"
    assert f"broken   CG905  {title} ({WAITS.format(2)})" in out
    assert "torch unknown" in out
    assert "what is broken here is cudaguard" not in out
    assert err == ""
    assert '"inventory": null' in bundle.read_text()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_while_it_waits(planted, stuck, child, number, status):
    """Nothing stays behind."""
    waiting = []

    def waits(pid):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            waiting[:] = file.read().split()
        return waiting and not time.sleep(0.5)

    env = {"PYTHONPATH": str(planted.folder)}
    done = child.signaled(*DOCTOR, number=number, once=waits, env=env)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (status, "", False)
    assert not os.path.exists(f"/proc/{waiting[0]}")
