"""``cudaguard doctor`` on real packages: healthy ones, and those that are known to break."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..conftest import ROOT
from ..documents import valid
from ..processes import Child
from .pins import OURS, TORCH

pytestmark = pytest.mark.incidents
# The environments of test_torch_extension.py and test_bisect.py, so that they are built once.
XFORMERS = "xformers==0.0.35"
CUPTI = ("nvidia-cuda-cupti-cu11==11.8.87", "nvidia-cuda-cupti-cu12==12.4.127")
RUNTIME = ("nvidia-cuda-runtime-cu11==11.8.89", "nvidia-cuda-runtime-cu12==12.4.127")
NVTX = ("nvidia-nvtx-cu11==11.8.86", "nvidia-nvtx-cu12==12.4.127")


def doctor(python, *arguments, start=(), path=()):
    """Run the doctor of this checkout in an environment; returns its status and its checks."""
    command = (python, *start, "-m", "cudaguard", "doctor", "--format", "json", *arguments)
    env = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, *path)))}
    done = Child(Path("/")).command(*command, env=env, timeout=600, check=False)
    document = valid("doctor", done.stdout)
    return done.returncode, {check["id"]: check for check in document["checks"]}


def site_of(python):
    return next(Path(python).parents[1].glob("lib/python3*/site-packages"))


def test_healthy_torch_for_cuda(cuda_torch):
    """Every file is read, nothing is found, and it takes about as long as reading them."""
    started = time.monotonic()
    status, checks = doctor(cuda_torch)
    print(f"{time.monotonic() - started:.2f} s")
    assert status == 0
    assert not [c for c in checks.values() if c["status"] in ("fail", "broken")]
    assert checks["CG902"]["status"] == checks["CG903"]["status"] == "ok"


def test_library_that_torch_lacks(cuda_torch, tmp_path):
    """A copy of the environment by links, without cuDNN's library."""
    real = site_of(cuda_torch)
    farm = tmp_path / "packages"
    for folder, _, files in os.walk(real):
        here = farm / os.path.relpath(folder, real)
        here.mkdir(parents=True, exist_ok=True)
        for name in files:
            os.symlink(os.path.join(folder, name), here / name)
    (farm / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9").unlink()
    base = subprocess.run(
        [str(cuda_torch), "-c", "import sys; print(sys._base_executable)"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    status, checks = doctor(base, start=["-S"], path=[farm])
    assert status == 1
    (found,) = checks["CG902"]["findings"]
    assert found["what"].startswith("torch 2.13.0 would not load: ")
    assert "not found: libcudnn.so.9" in found["evidence"]


@pytest.fixture(scope="module")
def mismatch(cached_environment, kept):
    """An environment with torch, and beside it an xformers that was built for another."""
    return cached_environment(*TORCH), kept.packages(XFORMERS)


def test_extension_for_another_torch(mismatch):
    """`pip check` and `xformers.info` call this environment fine."""
    python, folder = mismatch
    status, checks = doctor(python, path=[folder])
    assert status == 1
    assert checks["CG902"]["status"] == "fail"
    told = " ".join(
        [line for one in checks["CG902"]["findings"] for line in (one["what"], *one["evidence"])]
    )
    assert "xformers 0.0.35" in told
    assert "not found: libcudart.so.12" in told


@pytest.mark.parametrize(
    ("wheels", "damaged"),
    # The second two bring one and the same file: nobody has lost anything.
    [(CUPTI, "nvidia/cuda_cupti/lib/lib"), (NVTX, "")],
    ids=["cupti", "nvtx"],
)
def test_wheels_of_two_cuda_families_in_one_folder(cached_environment, tmp_path, wheels, damaged):
    python = cached_environment(*OURS)
    for wheel in wheels:
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target",
             str(tmp_path), wheel], check=True, timeout=600,
        )  # fmt: skip
    status, checks = doctor(python, "--only", "CG905", path=[tmp_path])
    (check,) = checks.values()
    errors = [one for one in check["findings"] if one["severity"] == "error"]
    if not damaged:
        assert (status, errors) == (0, [])
        return
    # With --target, pip replaces whole folders: files of the first that the second lacks are gone.
    (found,) = [one for one in errors if " overwrite files of each other" in one["what"]]
    assert (status, check["status"]) == (1, "fail")
    assert damaged in " ".join(found["evidence"])
    assert {wheel.partition("==")[0] for wheel in wheels} <= set(found["what"].split())


def test_advice_about_wheels_of_two_cuda_families_leaves_the_other_whole(tmp_path):
    """To uninstall one deletes most headers of the other; the advice brings them back."""
    environment = tmp_path / "env"
    python = environment / "bin" / "python"
    steps = (
        [sys.executable, "-m", "venv", environment],
        [python, "-m", "pip", "install", "--quiet", *OURS, *RUNTIME],
    )
    for step in steps:
        subprocess.run(list(map(str, step)), check=True, timeout=600)
    headers = environment.glob("lib/python*/site-packages/nvidia/cuda_runtime/include/**/*.h*")
    before = len(list(headers))

    def examine():
        status, checks = doctor(python, "--only", "CG905")
        return status, checks["CG905"]["status"], checks["CG905"]["findings"]

    _, status, (overlap,) = examine()
    assert (status, overlap["severity"]) == ("warning", "warning")
    command = overlap["command"].replace(" uninstall -y ", " uninstall -y --quiet ")
    subprocess.run(["sh", "-c", command], check=True, timeout=600)
    assert examine() == (0, "ok", [])
    headers = environment.glob("lib/python*/site-packages/nvidia/cuda_runtime/include/**/*.h*")
    assert len(list(headers)) > 0.9 * before


def test_nothing_initializes_cuda_and_torch_is_imported_in_a_child(cuda_torch):
    status, checks = doctor(cuda_torch, "--deep", "--only", "CG912")
    assert (status, checks["CG912"]["status"]) == (0, "ok")
    assert "torch " in checks["CG912"]["reason"]
