"""Fat binaries of real wheels, held against NVIDIA's own cuobjdump; no GPU is asked for."""

from __future__ import annotations

import platform
import re
import subprocess
import sys

import pytest

from cudaguard.elf.library_facts import gpu_code
from cudaguard.system.torch_build import architectures

from ..conftest import ROOT, clean_environment
from ..documents import valid
from ..kept import PIP, about, run_python
from .test_doctor import XFORMERS, site_of

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or platform.machine() != "x86_64",
        reason="the wheels are for Linux on x86-64",
    ),
]
CUOBJDUMP = "nvidia-cuda-cuobjdump==13.5.37"
# CUDA 12.4 with PTX, CUDA 11.8 to 13.2 built with -rdc=true, CUDA 12.8 with sm_90a.
NVJPEG, BITSANDBYTES = "nvidia-nvjpeg-cu12==12.4.0.76", "bitsandbytes==0.50.2"
IMAGE = re.compile(r"\.sm_(\w+)\.(cubin|ptx)$", re.MULTILINE)
KINDS = {"cubin": "sm", "ptx": "compute"}


@pytest.fixture(scope="module")
def dumped(kept):
    """Returns what cuobjdump lists of a file."""
    (program,) = kept.packages(CUOBJDUMP).rglob("bin/cuobjdump")

    def dumped(path):
        command = [program, "--list-elf", "--list-ptx", path]
        # Without an image of one of the two it ends with an error, after it has listed the others.
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return {f"{KINDS[kind]}_{number}" for number, kind in IMAGE.findall(told)}

    return dumped


@pytest.mark.parametrize("wheel", [NVJPEG, XFORMERS], ids=["nvjpeg", "xformers"])
def test_wheels_agree_with_cuobjdump(kept, dumped, wheel):
    found = {}
    for path in kept.packages(wheel).rglob("*.so*"):
        if has := set(gpu_code(str(path)).architectures):
            found[path.name] = has, dumped(path)
    assert found
    assert all(ours == theirs for ours, theirs in found.values()), found


def test_linked_for_devices_cuobjdump_lists_what_was_linked(kept, dumped):
    """The PTX that the driver may link is listed by ``cuobjdump --all-fatbin`` only."""
    libraries = sorted(kept.packages(BITSANDBYTES).rglob("libbitsandbytes_cuda1*.so"))
    assert len(libraries) >= 6
    judged = 0
    for path in libraries:
        theirs = dumped(path)
        if len(theirs) < 2:  # it gives up on a file in the middle: "Invalid ELF"
            continue
        ours = set(gpu_code(str(path)).architectures)
        assert {one for one in ours if one.startswith("sm_")} == theirs, path.name
        assert len(ours - theirs) == 1, path.name
        judged += 1
    assert judged >= 5


@pytest.mark.parametrize(
    ("gpu", "lacking"),
    [
        ("sm_70", {"libbitsandbytes_cuda130.so", "libbitsandbytes_cuda132.so"}),
        ("sm_120", set()),  # PTX of the older ones
    ],
)
def test_library_for_each_cuda_is_judged_by_the_command(kept, child, gpu, lacking):
    """CUDA 13 has left Volta out."""
    folder = kept.packages(BITSANDBYTES) / "bitsandbytes"
    done = child.command(
        sys.executable, "-m", "cudaguard", "check-extension", "--gpu", gpu, "--format", "json",
        folder, check=False,
    )  # fmt: skip
    checks = valid("check-extension", done.stdout)["checks"]
    judged = [check for check in checks if check["gpus"]]
    assert len(judged) >= 6
    names = {check["path"].rpartition("/")[2] for check in judged if not check["gpus"][0]["ok"]}
    assert names == lacking
    assert done.returncode == bool(lacking)


# --- torch, and what is built for it -------------------------------------------------------------

# Of the release of CUDA that this torch is built for.
TORCHVISION = "torchvision==0.28.0"
LOAD = "import ctypes, sys, torch; [ctypes.CDLL(path) for path in sys.argv[1:]]"


def checked(python, *arguments):
    """Run the command of this checkout in an environment; returns its status and its checks."""
    done = subprocess.run(
        [str(python), "-m", "cudaguard", "check-extension", "--format", "json", *arguments],
        env=clean_environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, check=False,
        cwd="/",
    )  # fmt: skip
    return done.returncode, valid("check-extension", done.stdout)["checks"]


def test_torch_itself(cuda_torch):
    """CUDA 13 has left Volta out; what torch says of itself stands in its fat binaries."""
    torch = site_of(cuda_torch) / "torch"
    said = {one for one in architectures(str(torch)) if one.startswith("sm_")}
    library = torch / "lib" / "libtorch_cuda.so"
    assert said
    assert said <= set(gpu_code(str(library)).architectures)
    status, (check,) = checked(cuda_torch, "--gpu", "sm_70", "--gpu", "sm_90", str(library))
    assert (status, check["ok"]) == (1, True)
    assert [gpu["ok"] for gpu in check["gpus"]] == [False, True]


def test_what_is_built_for_torch_agrees_with_the_loader(kept, cuda_torch):
    install = (*PIP, "install", "--no-deps", "--only-binary", ":all:", "--target")
    folder = kept.folder(
        "torchvision", (about(str(cuda_torch)), TORCHVISION),
        lambda folder: run_python(cuda_torch, *install, folder, TORCHVISION),
    )  # fmt: skip
    status, checks = checked(cuda_torch, "--gpu", "sm_70", "--gpu", "sm_121", str(folder))
    assert (status, {check["ok"] for check in checks}) == (1, {True})
    by_name = {check["path"].rpartition("/")[2]: check for check in checks}
    assert [gpu["ok"] for gpu in by_name["_C.so"]["gpus"]] == [False, True]
    run_python(cuda_torch, "-c", LOAD, *(check["path"] for check in checks))
