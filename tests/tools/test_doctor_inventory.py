"""The inventory of ``cudaguard doctor``: real environments, and planted files that are hostile."""

from __future__ import annotations

import json
import os
import platform
import re
import sys

import pytest

from cudaguard.tools.doctor.inventory import machine
from cudaguard.tools.doctor.inventory.document import redacted
from cudaguard.tools.doctor.inventory.field import is_of_field
from cudaguard.tools.doctor.inventory.packages import conda_packages
from cudaguard.tools.doctor.inventory.text import gpus_told

from ..documents import valid
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


def look(planted, *arguments, **options):
    """Return the inventory of a report, held against the schema."""
    status, out, err = planted.run("--inventory", "--format", "json", *arguments, **options)
    assert (status, err) == (0, "")
    document = valid("doctor", out)
    assert document["checks"] == []
    return document["inventory"]


def named(packages, name):
    (found,) = (one for one in packages if one["name"] == name)
    return found


def test_system_and_python_are_these(planted):
    found = look(planted)
    assert found["python"]["version"] == platform.python_version()
    assert found["python"]["kind"] == ("venv" if sys.prefix != sys.base_prefix else "system")
    assert found["system"]["kernel"] == platform.uname().release
    assert found["system"]["libc"] == os.confstr("CS_GNU_LIBC_VERSION")
    assert found["system"]["cpus"] == len(os.sched_getaffinity(0))
    assert found["system"]["memory_bytes"] > 1 << 28


def test_report_has_it_as_data_and_text_only_on_request(planted):
    _, out, _ = planted.run("--format", "json", "--only", "CG905")
    assert valid("doctor", out)["inventory"]["python"]
    assert "variables" not in planted.run("--only", "CG905")[1]
    status, out, err = planted.run("--inventory", env={"CUDA_HOME": "/nowhere"})
    assert (status, err) == (0, "")
    assert re.search(r"^(?:variables)? +CUDA_HOME=/nowhere$", out, re.MULTILINE)
    assert "checks:" not in out


def test_packages_have_version_build_and_source(planted):
    tag = "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n"
    planted.distribution("torch", "2.13.0+cu130", INSTALLER="uv\n", WHEEL=tag)
    vcs = {"url": "https://github.com/x/y", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}
    planted.distribution("flash-attn", "2.8", **{"direct_url.json": json.dumps(vcs)})
    folder = {"url": "file:///src/apex", "dir_info": {"editable": True}}
    planted.distribution("apex", "0.1", **{"direct_url.json": json.dumps(folder)})
    planted.distribution("nvidia-curand-cu12", "10.3.9.90", INSTALLER="pip\n")
    planted.distribution("some-thing", "10.1.2.3")
    found = look(planted)
    assert named(found["packages"], "torch") == {
        "name": "torch", "version": "2.13.0+cu130", "build": "cp311-cp311-linux_x86_64",
        "source": "uv",
    }  # fmt: skip
    assert named(found["packages"], "flash-attn")["source"] == (
        f"git+https://github.com/x/y@{COMMIT}"
    )
    assert named(found["packages"], "apex")["source"] == "editable file:///src/apex"
    assert named(found["packages"], "nvidia-curand-cu12")["version"] == "10.3.9.90", "no address"
    assert found["other_packages"]["some-thing"] == "10.1.2.3"


@pytest.mark.parametrize(
    "text", ["{}", '{"url": 3, "vcs_info": 4}', '{"url": "", "dir_info": {}}', '{"dir_info": {}}']
)
def test_origin_that_makes_no_sense(planted, text):
    planted.distribution("apex", "0.1", INSTALLER="pip", **{"direct_url.json": text})
    assert named(look(planted)["packages"], "apex")["source"] in ("pip", "3")


@pytest.mark.parametrize("text", ["{", "[]", "3", "[" * 100_000])
def test_distribution_that_cannot_be_read_is_named(planted, text):
    planted.distribution("apex", "0.1", **{"direct_url.json": text})
    assert look(planted)["other_packages"]["apex-0.1.dist-info"] == "unreadable"


def test_metadata_that_is_no_file(planted):
    info = planted.distribution("apex", "0.1")
    os.mkfifo(info / "WHEEL")
    (info / "INSTALLER").symlink_to("/dev/zero")
    found = named(look(planted)["packages"], "apex")
    assert (found["build"], found["source"]) == ("", "")


def test_torch_is_read_and_not_imported(planted):
    planted.write("torch/__init__.py", "print('imported')\n")
    planted.write("torch/version.py", VERSION)
    planted.distribution("torch", "2.13.0+cu130")
    torch = look(planted, "--no-redact")["torch"]
    assert torch == {
        "version": "2.13.0+cu130", "folder": str(planted.folder / "torch"), "debug": "False",
        "cuda": "13.0", "commit": COMMIT,
    }  # fmt: skip
    told = planted.run("--inventory")[1]
    assert f"2.13.0+cu130, cuda 13.0, commit {COMMIT[:12]}" in told
    assert look(planted)["torch"]["commit"] == COMMIT


def test_conda_has_packages_that_pip_does_not_know(tmp_path):
    meta = tmp_path / "conda-meta"
    meta.mkdir()
    channel = "https://conda.anaconda.org/conda-forge/linux-64"
    (meta / "cudnn-9.8.0.87-h81d5506_1.json").write_text(json.dumps({"channel": channel}))
    (meta / "libstdcxx-ng-13.2.0-hc0a3c3a_5.json").write_text("{ not JSON")
    (meta / "tzdata-2024a-h0c530f3_0.json").write_text("")
    (meta / "history").write_text("")
    os.mkfifo(meta / "nccl-2.26.2.1-ha44e49d_1.json")
    found, others = conda_packages(str(tmp_path))
    assert [tuple(one.values()) for one in found] == [
        ("cudnn", "9.8.0.87", "h81d5506_1", "https://conda.anaconda.org/conda-forge"),
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
    found = machine.gpus(str(tmp_path))
    assert found["driver"] == "580.65.06"
    assert found["models"] == ["NVIDIA H100 80GB HBM3"] * 2
    assert gpus_told(found) == ["2 x NVIDIA H100 80GB HBM3"]
    assert gpus_told({"models": [], "pci_devices": 4}) == ["4 on the PCI bus, models unknown"]


def test_system_without_any_of_its_files(tmp_path):
    found = machine.system(str(tmp_path))
    assert (found["os"], found["cpu"], found["memory_bytes"]) == (platform.uname().system, "", 0)
    assert machine.gpus(str(tmp_path))["models"] == []


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
    assert machine.system(str(tmp_path))["instructions"] == told


def test_tools_that_are_absent_or_odd(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.tools({})["nvcc"] == ""
    assert machine.tools({})["gcc"] == ""
    (tmp_path / "c++").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "c++").chmod(0o755)
    assert machine.tools({})["gcc"] == f"other ({tmp_path}/c++)"
    nvcc = tmp_path / "cuda/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho Cuda compilation tools, release 12.4, V12.4.131\n")
    nvcc.chmod(0o755)
    assert machine.tools({"CUDA_HOME": str(tmp_path / "cuda")})["nvcc"] == f"12.4 ({nvcc})"


def test_quote_that_is_not_closed_in_the_compiler(planted):
    assert look(planted, env={"CXX": "'g++"})["tools"]["gcc"] == ""


def test_names_say_what_is_a_secret():
    kept = redacted(
        {"version": "10.3.9.90", "variables": {"HF_TOKEN": "hf_abcdefghijklmnop"}},
        lambda text: text.replace("HF_TOKEN=hf_abcdefghijklmnop", "HF_TOKEN=<secret>"),
    )
    assert kept == {"version": "10.3.9.90", "variables": {"HF_TOKEN": "<secret>"}}


def test_inventory_tells_neither_who_nor_secrets(planted, tmp_path):
    home = tmp_path / "home" / "wilhelmina"
    home.mkdir(parents=True)
    env = {"HOME": str(home), "USER": "wilhelmina", "TORCH_TOKEN": "s3cret-value",
           "CUDA_HOME": f"{home}/cuda"}  # fmt: skip
    for arguments in (("--inventory",), ("--inventory", "--format", "json")):
        out = planted.run(*arguments, env=env)[1]
        assert "s3cret-value" not in out
        assert "wilhelmina" not in out
        assert "~/cuda" in out
    assert "wilhelmina" in planted.run("--inventory", "--no-redact", env=env)[1]


def test_others_are_listed_on_request(planted):
    planted.distribution("some-thing", "1.2.3")
    assert "some-thing" not in planted.run("--inventory")[1]
    assert "more (--verbose)" in planted.run("--inventory")[1]
    assert re.search(r"some-thing +1\.2\.3", planted.run("--inventory", "-v")[1])


def test_field_is_at_least_the_forty_packages_that_are_asked_for():
    asked = """
        torch torchvision torchaudio torchcodec triton xformers flash-attn vllm sglang
        deepspeed apex transformer-engine bitsandbytes accelerate lightning transformers diffusers
        numpy scipy numba cupy-cuda12x pycuda cuda-python jax jaxlib tensorflow onnxruntime-gpu
        tensorrt-cu12 nvidia-dali-cuda120 decord opencv-python-headless av torch-geometric
        pytorch3d nvdiffrast kaolin faiss-gpu cudf-cu12 cuml-cu12 rmm-cu12 warp-lang
        nvidia-nccl-cu12 nvidia-cudnn-cu13 cudnn nccl Torch_Scatter
    """
    assert [name for name in asked.split() if not is_of_field(name)] == []
    assert not is_of_field("requests")


def test_name_of_the_host_in_the_name_of_a_file(planted, child):
    status, out, err = planted.run("--inventory", "-o", "doctor-%h.txt")
    assert (status, out, err) == (0, "", "")
    (file,) = child.folder.glob("doctor-*.txt")
    assert file.name == f"doctor-{platform.node().partition('.')[0] or 'localhost'}.txt"
