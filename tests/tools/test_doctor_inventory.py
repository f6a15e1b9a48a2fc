"""The inventory in a bundle: real environments, and planted files that are hostile."""

from __future__ import annotations

import json
import os
import platform
import sys

import pytest

from cudaguard.system.packages import Site
from cudaguard.tools.doctor import inventory
from cudaguard.tools.doctor.inventory import conda_packages

from .doctor import PURE
from .doctor import planted as planted

COMMIT = "ba56102387ef21a3b04b357e5b183d48f0afefc7"
VERSION = f"""from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
__version__ = '2.13.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = '{COMMIT}'
hip: Optional[str] = None
"""
INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 201
GPU UUID: \t GPU-01234567-89ab-cdef-0123-456789abcdef
Bus Location: \t 0000:{bus}:00.0
"""


@pytest.fixture
def look(planted, monkeypatch):
    """Looks at this environment, with what is planted."""
    monkeypatch.syspath_prepend(str(planted.folder))
    return lambda: inventory.inventory(Site())


def named(packages, name):
    (found,) = (one for one in packages if one["name"] == name)
    return found


def test_system_and_python_are_these(look):
    found = look()
    assert found["python"]["version"] == platform.python_version()
    assert found["python"]["kind"] == ("venv" if sys.prefix != sys.base_prefix else "system")
    assert found["system"]["kernel"] == platform.uname().release
    assert found["system"]["libc"] == os.confstr("CS_GNU_LIBC_VERSION")
    assert found["system"]["cpus"] == len(os.sched_getaffinity(0))
    assert found["system"]["memory_bytes"] > 1 << 28


def test_packages_have_version_build_and_source(planted, look):
    tag = "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n"
    planted.distribution("torch", "2.13.0+cu130", INSTALLER="uv\n", WHEEL=tag)
    vcs = {"url": "https://github.com/x/y", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}
    planted.distribution("flash-attn", "2.8", **{"direct_url.json": json.dumps(vcs)})
    folder = {"url": "file:///src/apex", "dir_info": {"editable": True}}
    planted.distribution("apex", "0.1", **{"direct_url.json": json.dumps(folder)})
    planted.distribution("nvidia-curand-cu12", "10.3.9.90", INSTALLER="pip\n")
    planted.distribution("some-thing", "10.1.2.3", WHEEL=PURE)
    found = look()
    assert named(found["packages"], "torch") == {
        "name": "torch", "version": "2.13.0+cu130", "build": "cp311-cp311-linux_x86_64",
        "source": "uv",
    }  # fmt: skip
    assert named(found["packages"], "flash-attn")["source"] == (f"https://github.com/x/y@{COMMIT}")
    assert named(found["packages"], "apex")["source"] == "editable file:///src/apex"
    assert named(found["packages"], "nvidia-curand-cu12")["version"] == "10.3.9.90", "no address"
    assert found["other_packages"]["some-thing"] == "10.1.2.3"


@pytest.mark.parametrize(
    "text", ["{}", '{"url": 3, "vcs_info": 4}', '{"url": "", "dir_info": {}}', '{"dir_info": {}}']
)
def test_origin_that_makes_no_sense(planted, look, text):
    planted.distribution("apex", "0.1", INSTALLER="pip", **{"direct_url.json": text})
    assert named(look()["packages"], "apex")["source"] in ("pip", "3")


@pytest.mark.parametrize("text", ["{", "[]", "3", "[" * 100_000])
def test_distribution_that_cannot_be_read_is_named(planted, look, text):
    planted.distribution("apex", "0.1", **{"direct_url.json": text})
    assert look()["other_packages"]["apex-0.1.dist-info"] == "unreadable"


def test_metadata_that_is_no_file(planted, look):
    info = planted.distribution("apex", "0.1")
    os.mkfifo(info / "WHEEL")
    (info / "INSTALLER").symlink_to("/dev/zero")
    found = named(look()["packages"], "apex")
    assert (found["build"], found["source"]) == ("", "")


def test_torch_is_read_and_not_imported(planted, look):
    planted.write("torch/__init__.py", "print('imported')\n")
    planted.write("torch/version.py", VERSION)
    planted.distribution("torch", "2.13.0+cu130")
    torch = look()["torch"]
    assert torch == {
        "version": "2.13.0+cu130", "folder": str(planted.folder / "torch"), "debug": "False",
        "cuda": "13.0", "git_version": COMMIT,
    }  # fmt: skip


def test_conda_has_packages_that_pip_does_not_know(tmp_path):
    meta = tmp_path / "conda-meta"
    meta.mkdir()
    channel = "https://conda.anaconda.org/conda-forge/linux-64"
    (meta / "cudnn-9.8.0.87-h81d5506_1.json").write_text(json.dumps({"channel": channel}))
    (meta / "libstdcxx-ng-13.2.0-hc0a3c3a_5.json").write_text("{ not JSON")
    noarch = channel.replace("linux-64", "noarch/")
    (meta / "tzdata-2024a-h0c530f3_0.json").write_text(json.dumps({"channel": noarch}))
    (meta / "history").write_text("")
    os.mkfifo(meta / "nccl-2.26.2.1-ha44e49d_1.json")
    found, others = conda_packages(str(tmp_path))
    assert [tuple(one.values()) for one in found] == [
        ("cudnn", "9.8.0.87", "h81d5506_1", channel),
        ("libstdcxx-ng", "13.2.0", "hc0a3c3a_5", "conda"),
        ("nccl", "2.26.2.1", "ha44e49d_1", "conda"),
    ]
    assert others == {"tzdata": "2024a"}
    assert conda_packages(str(tmp_path / "absent")) == ([], {})


def test_gpus_as_the_kernel_module_lists_them(tmp_path):
    for bus in ("1b", "43"):
        folder = tmp_path / f"proc/driver/nvidia/gpus/0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(bus=bus))
    (tmp_path / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:11:47 UTC 2026\n"
    )
    found = inventory.gpus(str(tmp_path))
    assert found["driver"] == "580.65.06"
    assert found["models"] == ["NVIDIA H100 80GB HBM3"] * 2


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("model name\t: Xeon\nflags\t\t: fpu avx2 sse4_2 avx512f\n", "sse4_2 avx2 avx512f"),
        ("Features\t: fp asimd sve\n", "asimd sve"),
        ("flags\t\t:\nbugs\t: avx2\n", ""),
    ],
)
def test_vector_instructions(tmp_path, said, told):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(said)
    assert inventory.system(str(tmp_path))["instructions"] == told


def test_tools_that_are_absent_or_odd(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert inventory.tools({})["nvcc"] == ""
    assert inventory.tools({})["gcc"] == ""
    (tmp_path / "c++").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "c++").chmod(0o755)
    assert inventory.tools({})["gcc"] == f"other ({tmp_path}/c++)"
    nvcc = tmp_path / "cuda/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho Cuda compilation tools, release 12.4, V12.4.131\n")
    nvcc.chmod(0o755)
    assert inventory.tools({"CUDA_HOME": str(tmp_path / "cuda")})["nvcc"] == f"12.4 ({nvcc})"
