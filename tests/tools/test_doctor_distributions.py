"""CG905: installed distributions that overwrite, hide or no longer are what they were."""

from __future__ import annotations

import json
import os
import shlex
import sys
import sysconfig
from pathlib import Path

import pytest

from ..features.extensions.conftest import Builder
from .doctor import Planted, links, torch
from .doctor import build as build
from .doctor import planted as planted


def test_two_distributions_that_overwrite_one_another(planted):
    planted.write("cupy/_core/core.so", "first")
    planted.write("cupy/__init__.py", "first")
    files = ("cupy/_core/core.so", "cupy/__init__.py")
    planted.distribution("cupy-cuda12x", "13.0.0", files=files)
    planted.write("cupy/_core/core.so", "second")
    planted.write("cupy/__init__.py", "second")
    planted.distribution("cupy-cuda13x", "13.6.0", files=files)
    planted.distribution("user", requires=("cupy-cuda13x>=13.5; python_version > '3'",))
    planted.distribution("other", requires=("cupy-cuda12x; extra == 'gpu'",))
    status, (found,) = planted.one("CG905")
    assert status == "fail"
    assert {"cupy-cuda12x", "cupy-cuda13x"} <= set(found["what"].split())
    asked = "user 1.0 requires cupy-cuda13x>=13.5"
    assert found["evidence"] == ["cupy/_core/core.so", asked, "cupy/__init__.py"]
    assert "pip uninstall -y cupy-cuda12x && " in found["command"]
    assert found["command"].endswith("pip install --force-reinstall --no-deps cupy-cuda13x==13.6.0")


def test_one_of_three_is_kept(planted):
    for name in ("opencv-python", "opencv-contrib-python", "opencv-python-headless"):
        files = ["cv2/cv2.abi3.so", *["cv2/aruco.py"] * ("contrib" in name)]
        for file in files:
            planted.write(file, name)
        planted.distribution(name, files=files)
        planted.distribution(f"user-of-{name}", requires=(name,))
    (found,) = planted.one("CG905")[1]
    assert found["command"].endswith(" --no-deps opencv-contrib-python==1.0")
    assert "pip uninstall -y opencv-python opencv-python-headless && " in found["command"]


def test_what_torch_requires_is_kept(planted):
    """Of the NCCL of CUDA 12, and of 13, which xgboost requires."""
    for name, user in (("nvidia-nccl-cu12", "torch"), ("nvidia-nccl-cu13", "xgboost")):
        planted.write("nvidia/nccl/lib/libnccl.so.2", name)
        planted.distribution(name, "2.28.9", files=["nvidia/nccl/lib/libnccl.so.2"])
        planted.distribution(user, requires=(name,))
    (found,) = planted.one("CG905")[1]
    assert "pip uninstall -y nvidia-nccl-cu13 && " in found["command"]


@pytest.mark.parametrize("needed", ["libcudart.so.13", "libother.so.1"])
def test_build_for_gpus_is_kept(planted, build, needed):
    """Without onnxruntime-gpu sessions would run on the CPU, though others require onnxruntime."""
    library = build(needed, "int x;", f"-Wl,-soname,{needed}")
    provider = "onnxruntime/libonnxruntime_providers_cuda.so"
    build(provider, "int call;", "-Wl,--no-as-needed", library)
    for name, files in (("onnxruntime", ()), ("onnxruntime-gpu", (provider,))):
        planted.write("onnxruntime/capi/core.so", name)
        planted.distribution(name, files=["onnxruntime/capi/core.so", *files])
    planted.distribution("rembg", requires=("onnxruntime",))
    (found,) = planted.one("CG905")[1]
    gone = "onnxruntime" if needed == "libcudart.so.13" else "onnxruntime-gpu"
    assert f"pip uninstall -y {gone} && " in found["command"]


def test_files_that_are_alike_or_made_to_be_shared(planted):
    """To uninstall OpenMM for a text, as was said, left its plug-in for CUDA alone."""
    files = ("shared/both.so", "shared/__init__.py", "shared/swig/typemaps.i")
    for name in ("OpenMM", "OpenMM-CUDA-12"):
        for file in files:
            planted.write(file, "same" if file.endswith(".so") else name)
        planted.distribution(name, files=files)
    planted.distribution("three", RECORD="shared/both.so,,\n")  # without a hash
    assert planted.one("CG905") == ("ok", [])


def test_harmless_file_of_two_that_others_need(planted):
    """As nixl needs one for each CUDA: to uninstall one would break it."""
    for name in ("nvidia-nixl-cu12", "nvidia-nixl-cu13"):
        planted.write("bin/example", name)
        planted.distribution(name, files=("bin/example",))
    assert len(planted.one("CG905")[1]) == 1
    planted.distribution("nixl", requires=("nvidia-nixl-cu12", "nvidia-nixl-cu13"))
    assert planted.one("CG905") == ("ok", [])


HEADERS = ("nvidia/cuda_runtime/include/cuda.h", "nvidia/cuda_runtime/include/alike.h")
EMPTY = "nvidia/__init__.py"


@pytest.mark.parametrize("differing", [True, False])
def test_uninstalling_one_of_two_wheels_restores_the_other(planted, differing):
    """Their headers have one path each, and pip deletes what the old one lists."""
    for name, version in (("cu11", "11.8.89"), ("cu12", "12.4.127")):
        library = f"nvidia/cuda_runtime/lib/libcudart.so.{version.partition('.')[0]}"
        planted.write(library, name)
        planted.write(HEADERS[0], name if differing else "alike")
        planted.write(HEADERS[1], "alike")
        planted.write(EMPTY)
        files = (library, *HEADERS, EMPTY)
        planted.distribution(f"nvidia-cuda-runtime-{name}", version, files=files)
    planted.distribution("nvidia-other-cu12", files=(EMPTY,))
    torch(planted, requires=("nvidia-cuda-runtime-cu12==12.4.127",))
    status, findings = planted.one("CG905")
    assert (status, len(findings)) == (("warning", 1) if differing else ("ok", 0))
    for found in findings:
        first, second = found["command"].split(" && ")
        assert first.endswith("pip uninstall -y nvidia-cuda-runtime-cu11")
        restored = "--force-reinstall --no-deps nvidia-cuda-runtime-cu12==12.4.127"
        assert second.endswith(f"pip install {restored}")


def test_pip_is_that_of_this_environment_also_where_it_is_not_activated(planted):
    for name in ("one", "two"):
        planted.write("tests/core.so", name)
        planted.distribution(name, files=("tests/core.so",))
    uninstall = "pip uninstall -y "

    def command(path):
        _, out, _ = planted.run("--format", "json", "--only", "CG905", env={"PATH": path})
        (found,) = json.loads(out)["checks"][0]["findings"]
        assert "tests/core.so" in found["evidence"]
        return found["command"]

    python = shlex.quote(os.path.abspath(sys.executable))
    assert command("/usr/bin:/bin").startswith(f"{python} -m {uninstall}")
    assert command(f"{sysconfig.get_path('scripts')}:/usr/bin:/bin").startswith(uninstall)


def test_broken_metadata_is_told_and_nothing_else_fails(planted):
    planted.write("none-1.0.dist-info/METADATA", "Name: none\n")
    planted.write("empty-1.0.dist-info/METADATA", "")
    (planted.folder / "bytes-1.0.dist-info").mkdir()
    (planted.folder / "bytes-1.0.dist-info" / "METADATA").write_bytes(b"\xff\xfe\0Name")
    (planted.folder / "folder-1.0.dist-info" / "METADATA").mkdir(parents=True)
    planted.distribution("url", **{"direct_url.json": "{"})
    _, checks = planted.checks()
    assert not [check for check in checks.values() if check["status"] == "broken"]
    told = [one["evidence"][0] for one in checks["CG905"]["findings"]]
    names = {Path(path).name.partition("-")[0] for path in told}
    assert {"none", "empty", "bytes", "folder", "url"} <= names


@pytest.fixture
def second(child, tmp_path):
    """A further folder of the path, as of the system behind that of the user."""
    return Planted(child, tmp_path / "second")


@pytest.mark.parametrize("version", ["2.5.0", "2.4.0"])
@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_distribution_that_hides_the_one_for_which_another_was_installed(
    planted, build, second, version, name
):
    planted.distribution(name, "2.4.0")
    second.distribution(name, version)
    if name == "torch":
        links(second, Builder(second.folder), "engine", "libc10.so", "libtorch.so")
    second.distribution("old", requires=("numpy<2.5; python_version<'3'", "numpy<2.4"))
    second.distribution("solver", requires=("numpy>=2.5; python_version>'3'", "torch>=2"))
    _, findings = planted.one("CG905", env={"PYTHONPATH": str(second.folder)})
    told = [one for one in findings if " hides " in one["what"]]
    if version == "2.4.0":  # the same twice
        assert told == []
        return
    (found,) = told
    user = {"torch": "engine", "numpy": "solver"}[name]
    assert found["what"] == f"{name} 2.4.0 hides {name} 2.5.0, for which {user} was installed."
    assert f"take {planted.folder} out of PYTHONPATH" in found["remedy"]
    assert found["severity"] == "warning"
    assert found["command"].endswith(f"-u PYTHONPATH python -m pip show {name}")


def test_torch_of_the_user_hides_that_of_a_container(child, build, second, tmp_path):
    base = tmp_path / "home/.local"
    (base / "lib").mkdir(parents=True)
    user = Planted(child, base / "lib/site-packages")
    user.distribution("torch", "2.4.0")
    second.distribution("torch", "2.5.0")
    links(second, Builder(second.folder), "engine", "libc10.so")
    env = {"PYTHONPATH": str(second.folder), "PYTHONUSERBASE": str(base)}
    _, findings = user.one("CG905", env=env)
    (found,) = (one for one in findings if " hides " in one["what"])
    assert "PYTHONNOUSERSITE=1" in found["remedy"]
    assert found["command"].startswith("PYTHONNOUSERSITE=1 python")
