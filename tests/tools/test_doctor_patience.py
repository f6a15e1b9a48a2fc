"""``cudaguard doctor`` where a file does not answer: a dead disk."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from ..conftest import clean_environment
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
    doctor = subprocess.Popen(
        DOCTOR, cwd=child.folder, env=clean_environment(PYTHONPATH=str(planted.folder)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children = f"/proc/{doctor.pid}/task/{doctor.pid}/children"
    deadline = time.monotonic() + 60
    waiting = []
    while not waiting and time.monotonic() < deadline:
        with open(children) as file:
            waiting = file.read().split()
    time.sleep(0.5)
    doctor.send_signal(number)
    out, err = doctor.communicate(timeout=60)
    assert (doctor.returncode, out, "Traceback" in err) == (status, "", False)
    assert waiting
    assert not os.path.exists(f"/proc/{waiting[0]}")
