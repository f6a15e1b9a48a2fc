"""What each check of ``cudaguard doctor`` finds in environments that are planted, and what not."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import nullcontext
from pathlib import Path

import pytest

import cudaguard

from ..features.extensions.conftest import Builder
from .doctor import build as build
from .doctor import links, torch
from .doctor import planted as planted

# --- CG901: rules ------------------------------------------------------------------------


def decord(planted):
    planted.write("decord/__init__.py")
    planted.distribution("decord", "0.6.0")


def test_known_fault_is_told_with_its_cure(planted):
    decord(planted)
    status, findings = planted.one("CG901")
    (found,) = (one for one in findings if one["rule"] == "CG001")
    assert status == "warning"
    assert found["what"].startswith("decord 0.6.0 exposes its old zlib and")
    assert found["command"] == "export CUDAGUARD=fix"
    assert "call cudaguard.install() first" in found["remedy"]


def test_known_fault_that_is_repaired_here_is_a_note(planted):
    decord(planted)
    status, findings = planted.one("CG901", env={"CUDAGUARD": "fix"})
    (found,) = (one for one in findings if one["rule"] == "CG001")
    assert (status, found["severity"]) == ("ok", "info")
    _, findings = planted.one("CG901", env={"CUDAGUARD_RULES": "-CG001"})
    (found,) = (one for one in findings if one["rule"] == "CG001")
    assert found["command"] == "export CUDAGUARD_RULES=+CG001"


def isaac(planted):
    """A fault that no rule can repair, and that was reported only."""
    planted.write("isaaclab/__init__.py")
    planted.distribution("usd-core", "25.11")


def test_fault_that_cudaguard_cannot_repair_is_told_with_the_rules_advice(planted):
    isaac(planted)
    status, findings = planted.one("CG901", env={"CUDAGUARD": "fix"})
    (found,) = (one for one in findings if one["rule"] == "CG049")
    assert (status, found["command"]) == ("warning", "cudaguard explain CG049")
    assert found["remedy"].endswith("cudaguard cannot repair this")
    torch(planted, "2.8.0")
    planted.write("torchcodec/__init__.py")
    planted.distribution("torchcodec", "0.17.0")
    (found,) = (one for one in planted.one("CG901")[1] if one["rule"] == "CG048")
    assert found["what"] == "torchcodec 0.17.0 was made for another torch."
    assert found["command"].endswith("pip install 'torchcodec>=0.6,<0.8'")


def test_versions_without_the_fault_are_not_told_of(planted):
    planted.write("decord/__init__.py")
    planted.distribution("decord", "0.7.0")
    _, findings = planted.one("CG901")
    assert not [one for one in findings if one["rule"] == "CG001"]


# --- CG902: extensions -------------------------------------------------------------------


def test_extension_for_another_torch_is_found_with_its_symbols(planted, build):
    """It links libc10, asks for CUDA's half of it, and for a function that nobody has."""
    for name in ("libc10.so", "libc10_cuda.so"):
        build(f"torch/lib/{name}", "int c10_there(void) { return 1; }", f"-Wl,-soname,{name}")
    torch(planted, "2.6.0+cpu")
    lib = planted.folder / "torch" / "lib"
    source = "int c10_there(void); int call(void) { return c10_there(); }"
    build("flashy/_C.so", source, "-Wl,--no-as-needed", lib / "libc10.so", lib / "libc10_cuda.so")
    (lib / "libc10_cuda.so").unlink()
    planted.write("flashy/__init__.py")
    planted.distribution("flashy", "1.2", files=("flashy/_C.so",))
    status, (found,) = planted.one("CG902")
    assert (status, found["severity"]) == ("fail", "error")
    assert found["what"].startswith("_C.so of flashy 1.2 would not load: ")
    assert "libc10_cuda.so" in found["what"]
    assert any("libc10_cuda.so" in line for line in found["evidence"])
    assert found["command"] == f"cudaguard check-extension {planted.folder}/flashy/_C.so"


def test_extension_of_an_editable_install_is_looked_at(planted, build, tmp_path):
    """Its files stand in no RECORD."""
    source = tmp_path / "source"
    elsewhere = Builder(source)
    lib = elsewhere("libcudart.so.12", "int cudaFree;", "-Wl,-soname,libcudart.so.12")
    elsewhere("mine/native.so", "int call;", "-Wl,--no-as-needed", lib)
    lib.unlink()
    url = f'{{"dir_info": {{"editable": true}}, "url": "file://{source}"}}'
    planted.distribution("mine", "0.1", **{"direct_url.json": url})
    _, findings = planted.one("CG902")
    assert [one["evidence"][0] for one in findings] == [f"{source}/mine/native.so"]
    assert "not found: libcudart.so.12" in findings[0]["evidence"]


def test_what_links_neither_torch_nor_cuda_is_left_alone(planted, build):
    build("other/native.so", "int absent(void); int call(void) { return absent(); }")
    planted.distribution("other", files=("other/native.so",))
    status, findings = planted.one("CG902")
    assert (status, findings) == ("skipped", [])


def test_lack_of_a_driver_alone_is_no_fault_of_a_package(planted, build):
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    links(planted, build, "alpha", "libcuda.so.1", "libcusolver.so.11")
    build("nvidia/cusolver/lib/libcusolver.so.11", "int x;", "-Wl,-soname,libcusolver.so.11")
    files = ("nvidia/cusolver/lib/libcusolver.so.11",)  # which the package opens
    planted.distribution("nvidia-cusolver-cu12", files=files)
    assert planted.one("CG902") == ("ok", [])


def test_library_in_a_wheel_that_the_package_opens_by_its_path(planted, build):
    """As cupy does; without the wheel it is a warning, as a part of the package may do without."""
    links(planted, build, "alpha", "libcusolver.so.11")
    status, findings = planted.one("CG902")
    assert (status, len(findings)) == ("warning", 1)
    assert "not found: libcusolver.so.11" in findings[0]["evidence"]
    build("nvidia/cusolver/lib/libcusolver.so.11", "int x;", "-Wl,-soname,libcusolver.so.11")
    files = ("nvidia/cusolver/lib/libcusolver.so.11",)
    planted.distribution("nvidia-cusolver-cu12", files=files)
    assert planted.one("CG902") == ("ok", [])


def test_library_of_its_own_that_the_package_opens_by_its_path(planted, build):
    """As torchaudio does; what that one lacks is named, and no fault of a part nobody uses."""
    absent = build("libsox.so", "int x;", "-Wl,-soname,libsox.so")
    for name, needed in (("libown.so", ()), ("libother.so", (absent,))):
        build(f"alpha/{name}", "int y;", f"-Wl,-soname,{name}", "-Wl,--no-as-needed", *needed)
    absent.unlink()
    alpha, names = planted.folder / "alpha", []
    c10 = build("torch/lib/libc10.so", "int z;", "-Wl,-soname,libc10.so")
    link = ("-Wl,--no-as-needed", c10, f"-Wl,-rpath,{c10.parent}")
    for name, own in (("_C.so", "libown.so"), ("_sox.so", "libother.so")):
        build(f"alpha/{name}", "int call;", *link, alpha / own)
        names += [f"alpha/{name}", f"alpha/{own}"]
    planted.distribution("alpha", files=names[:2])
    assert planted.one("CG902") == ("ok", [])
    planted.distribution("alpha", "1.1", files=names)
    (found,) = planted.one("CG902")[1]
    assert (found["severity"], found["evidence"][0]) == ("warning", f"{alpha}/_sox.so")
    assert "needs libsox.so (through libother.so)" in found["what"]


@pytest.mark.parametrize("there", [(), (97,), (96, 97)])
def test_of_libraries_for_several_releases_one_is_enough(planted, build, there):
    """As torchcodec has one for each FFmpeg, with a second one that needs the first."""
    torch(planted, "2.8.0")
    c10 = build("torch/lib/libc10.so", "int z;", "-Wl,-soname,libc10.so")
    link, files = ("-Wl,--no-as-needed", c10, f"-Wl,-rpath,{c10.parent}"), []
    for number in (96, 97):  # which no system has
        ffmpeg = build(f"libavutil.so.{number}", "int x;", f"-Wl,-soname,libavutil.so.{number}")
        names = [f"torchcodec/libtorchcodec_{part}{number}.so" for part in ("core", "ops")]
        runpath = f"-Wl,-rpath,{planted.folder}"
        soname = f"-Wl,-soname,{Path(names[0]).name}"
        core = build(names[0], "int y;", *link, ffmpeg, runpath, soname)
        build(names[1], "int w;", *link, core)
        files += names
        if number not in there:
            ffmpeg.unlink()
    planted.distribution("torchcodec", "0.7.0", files=files)
    findings = planted.one("CG902")[1]
    assert [one["remedy"] for one in findings] == ["install FFmpeg: apt-get install ffmpeg"] * (
        not there
    )


@pytest.mark.parametrize("when", ["", "; extra == 'all'"])
def test_library_of_a_distribution_that_it_requires(planted, build, when):
    """As pylibraft opens those of libraft-cu12; what an extra asks for may not be there."""
    own = build("libown/libown.so", "int y;", "-Wl,-soname,libown.so")
    cuda = build("libcudart.so.12", "int z;", "-Wl,-soname,libcudart.so.12")
    build("alpha/_C.so", "int call;", "-Wl,--no-as-needed", own, cuda)
    planted.distribution("nvidia-cuda-runtime-cu12", files=["libcudart.so.12"])
    planted.distribution("libown", files=["libown/libown.so"])
    planted.distribution("between", requires=("libown>=1.0",))
    planted.distribution("alpha", files=["alpha/_C.so"], requires=(f"between (==1.0){when}",))
    assert planted.one("CG902")[0] == ("warning" if when else "ok")


def test_one_finding_for_all_extensions_of_a_package_with_one_cause(planted, build):
    for number in range(5):
        library = build("libcublas.so.12", "int x;", "-Wl,-soname,libcublas.so.12")
        build(f"alpha/part{number}.so", "int call;", "-Wl,--no-as-needed", library)
        library.unlink()
    planted.distribution("alpha", files=[f"alpha/part{number}.so" for number in range(5)])
    (found,) = planted.one("CG902")[1]
    assert found["what"].startswith("part0.so (and 4 more) of alpha 1.0 would probably not load: ")
    assert "and 2 more files" in found["evidence"]


def opened(planted, build, package, *majors):
    """A package that opens one of its libraries by ctypes, one for each of some CUDAs."""
    for major in majors:
        soname = f"libcublas.so.{major}"
        library = build(f"tmp/{soname}", "int x;", f"-Wl,-soname,{soname}")
        file = f"{package}/libkernels_cuda{major}.so"
        build(file, "int call;", "-Wl,--no-as-needed", library)
    shutil.rmtree(planted.folder / "tmp")
    files = [f"{package}/libkernels_cuda{major}.so" for major in majors]
    planted.distribution(package, "2.6.0", files=files)


@pytest.mark.parametrize(
    ("majors", "is_told"), [((13,), True), ((12,), False), ((11, 12, 13), False)]
)
def test_library_for_another_cuda_that_a_package_opens_itself(planted, build, majors, is_told):
    """As transformer_engine does. Packages that have one for each CUDA are not spoken of."""
    torch(planted, "2.8.0+cu128", "'12.8'")
    opened(planted, build, "engine", *majors)
    status, findings = planted.one("CG902")
    assert status == ("warning" if is_told else "ok")
    built_for = "was built for another CUDA: it needs libcublas.so.13, but torch 2.8.0+cu128 is"
    assert [built_for in one["what"] for one in findings] == [True] * is_told
    assert all(one["remedy"].endswith(": pip install nvidia-cublas") for one in findings)


def test_library_for_another_cuda_that_is_installed_as_well(planted, build):
    torch(planted, "2.8.0+cu128", "'12.8'")
    opened(planted, build, "engine", 13)
    build("nvidia/cu13/lib/libcublas.so.13", "int x;", "-Wl,-soname,libcublas.so.13")
    planted.distribution("nvidia-cublas", files=("nvidia/cu13/lib/libcublas.so.13",))
    assert planted.one("CG902") == ("ok", [])


@pytest.mark.parametrize("has_cublas", [False, True])
def test_provider_for_another_cuda_is_not_said_to_be_repaired(planted, build, has_cublas):
    """The name of cuRAND does not tell the CUDA; onnxruntime-gpu 1.31 is for CUDA 13."""
    torch(planted, "2.10.0+cu128", "'12.8'")
    planted.write("onnxruntime/__init__.py")
    provider = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
    libraries = {"curand": "libcurand.so.10", "cu13": "libcublas.so.13"}
    for part, name in libraries.items():
        build(f"nvidia/{part}/lib/{name}", "int x;", f"-Wl,-soname,{name}")
    found = [planted.folder / f"nvidia/{part}/lib/{name}" for part, name in libraries.items()]
    build(provider, "int call;", "-Wl,--no-as-needed", *found)
    planted.distribution("onnxruntime-gpu", "1.31.1", files=(provider,))
    planted.distribution("nvidia-curand-cu12", files=("nvidia/curand/lib/libcurand.so.10",))
    if has_cublas:
        planted.distribution("nvidia-cublas", files=("nvidia/cu13/lib/libcublas.so.13",))
    else:
        found[1].unlink()
    rules = [one["rule"] for one in planted.one("CG901")[1]]
    assert ("CG007" in rules, planted.one("CG902")[0]) == (
        (True, "ok") if has_cublas else (False, "warning")
    )


NEW = "__nvJitLinkCreate_12_8"


def test_torch_that_opens_libraries_of_wheels_first(planted, build, tmp_path):
    """So does its __init__ since 2.5: LD_LIBRARY_PATH does not count for these."""
    link = "libnvJitLink.so.12"
    made = {}
    for folder, name in ((planted.folder / "nvidia/nvjitlink/lib", NEW), (tmp_path, "old")):
        source = f"int {name}(void) {{ return 1; }}"
        made[name] = Builder(folder)(link, source, f"-Wl,-soname,{link}")
    extension = f"torch/_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    build("torch/lib/libtorch_global_deps.so", "int x;")
    build(extension, f"int {NEW}(void); int call(void) {{ return {NEW}(); }}", made[NEW])
    torch(planted, "2.10.0", "'12.8'", files=(extension,))
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    (found,) = planted.one("CG902", env=env)[1]
    assert found["remedy"] == f"remove {tmp_path} from LD_LIBRARY_PATH"
    planted.write("torch/__init__.py", '_preload("nvjitlink", "libnvJitLink.so.*[0-9]")')
    assert planted.one("CG902", env=env) == ("ok", [])


LT, STATUS = "libcublasLt.so.11", "cublasLtGetStatusString"


@pytest.fixture
def cublas(planted, build):
    """An extension that finds the cuBLAS of a toolkit, and a torch with a part of that of its own.

    Both wheels were built for CUDA 11, which has had functions added in each release.
    """

    def made(torchs):
        """Plant both; torch's has these functions."""
        version = planted.write("v.map", f"{LT} {{ global: {STATUS}; cublasLtCreate; }};\n")
        flags = (f"-Wl,-soname,{LT}", f"-Wl,--version-script={version}")
        sources = {name: f"int {name}(void) {{ return 1; }}" for name in (STATUS, "cublasLtCreate")}
        toolkit = build(f"cuda-11.3/{LT}", "\n".join(sources.values()), *flags)
        call = f"int {STATUS}(void); int call(void) {{ return {STATUS}(); }}"
        to_toolkit = "-Wl,-rpath,$ORIGIN/../cuda-11.3:$ORIGIN"
        whole = build(
            "cuda-11.3/libcublas.so.11", call, toolkit, "-Wl,-soname,libcublas.so.11", to_toolkit
        )
        build("cupyish/_cublas.so", "int x;", "-Wl,--no-as-needed", whole, to_toolkit)
        planted.distribution("cupyish", "9.0.0", files=("cupyish/_cublas.so",))
        own = build(f"torch/lib/{LT}", "\n".join(sources[name] for name in torchs), *flags)
        name = f"torch/_C{sysconfig.get_config_var('EXT_SUFFIX')}"
        build(name, "int y;", "-Wl,--no-as-needed", own, "-Wl,-rpath,$ORIGIN/lib")
        torch(planted, "1.8.1+cu111", "'11.1'", files=(name,))

    return made


@pytest.mark.parametrize("torchs", [("cublasLtCreate",), ("cublasLtCreate", STATUS)])
def test_extension_that_gets_an_older_part_from_torch(planted, cublas, torchs):
    cublas(torchs)
    status, findings = planted.one("CG902")
    if len(torchs) == 2:
        assert (status, findings) == ("ok", [])
        return
    (found,) = findings
    assert (status, found["severity"]) == ("warning", "warning")
    start = "_cublas.so of cupyish 9.0.0 would not load after `import torch`: "
    assert found["what"].startswith(start)
    assert STATUS in found["what"]
    done = subprocess.run(
        found["command"], shell=True, capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("is_fitting_too", [False, True])
def test_torch_of_another_python(planted, build, is_fitting_too):
    """As that of a simulator, which is on PYTHONPATH."""
    library = build("tmp/libc10.so", "int x;", "-Wl,-soname,libc10.so")
    names = ["_C.cpython-37m-x86_64-linux-gnu.so"]
    names += [f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"] * is_fitting_too
    for name in names:
        build(f"elsewhere/{name}", "int call;", "-Wl,--no-as-needed", library)
    planted.distribution("torch", "1.13.1", files=[f"elsewhere/{name}" for name in names])
    _, findings = planted.one("CG902")
    said = [one["what"] for one in findings]
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    expected = f"torch 1.13.1 was built for Python 3.7, but this is Python {here}."
    assert (expected in said) is not is_fitting_too


def test_calls_that_are_looked_at_are_no_faults_of_what_is_installed(planted):
    for package in ("cv2", "isaacsim"):
        planted.write(f"{package}/__init__.py")
        planted.distribution(package)
    _, findings = planted.one("CG901", env={"CUDAGUARD": "fix"})
    assert not {one["rule"] for one in findings} & {"CG073"}
    assert {one["severity"] for one in findings} <= {"info"}


def test_rules_about_arrays_are_notes(planted):
    """They break no import, and many who have numba have no GPU."""
    planted.write("numba/__init__.py")
    planted.distribution("numba", "0.68.1")
    _, findings = planted.one("CG901")
    (found,) = (one for one in findings if one["rule"] == "CG020")
    assert found["severity"] == "info"


# --- CG903: libraries --------------------------------------------------------------------


def shared_twice(planted, build, first="9.1.0", second="9.5.0", name="libcudnn", added=""):
    """Two packages, each with a copy of one library; the second uses a function `added` to it."""
    soname = f"{name}.so.9"
    for package, version in (("alpha", first), ("beta", second)):
        folder = planted.folder / package / "lib"
        own = f"void {added}(void)" if package == "beta" and added else ""
        source = f"int version = {version.replace('.', '')}; {own and f'{own} {{}}'}"
        library = build(f"{package}/lib/{name}.so.{version}", source, f"-Wl,-soname,{soname}")
        (folder / soname).symlink_to(library.name)
        build(
            f"{package}/_native.so",
            f"extern int version; int *v = &version; {own and f'{own}; void *use = {added};'}",
            library, "-Wl,-rpath,$ORIGIN/lib",
        )  # fmt: skip
        files = (f"{package}/_native.so", f"{package}/lib/{soname}")
        planted.distribution(package, files=files)


def test_one_name_that_leads_to_two_files(planted, build):
    shared_twice(planted, build)
    status, (found,) = planted.one("CG903")
    assert status == "warning"
    assert found["what"].startswith(
        "alpha and beta would load different files of libcudnn.so.9 (cuDNN)"
    )
    assert [line.partition(", for ")[0] for line in found["evidence"]] == [
        f"{planted.folder}/alpha/lib/libcudnn.so.9.1.0: 9.1.0",
        f"{planted.folder}/beta/lib/libcudnn.so.9.5.0: 9.5.0",
    ]
    assert "With alpha imported first, beta gets the older one" in found["consequence"]
    assert found["command"] == "cudaguard bisect --imports alpha,beta"


@pytest.mark.parametrize("added", ["ncclCommWindowRegister", ""])
def test_what_the_older_file_lacks_is_read_from_both(planted, build, added):
    shared_twice(planted, build, "2.28.3", "2.28.9", "libnccl", added)
    status, found = planted.one("CG903")
    said = f"older one: loading beta probably fails with 'undefined symbol: {added}'"
    assert (status, len(found)) == (("warning", 1) if added else ("ok", 0))
    assert all(said in one["consequence"] for one in found)


@pytest.mark.parametrize("required", ["torch>=2", "cuda-pathfinder", "nvidia-nccl-cu12", "numpy"])
def test_package_that_has_the_wheels_library_opened_before(planted, build, tmp_path, required):
    """As vllm by torch, cupy by cuda-pathfinder, and faiss by its own code."""
    soname = "libnccl.so.2"
    new, old = planted.folder / "nvidia/nccl/lib", tmp_path / "old"
    for folder, version, added in ((new, "2.28.9", "int added(void) { return 1; }"),
                                   (old, "2.18.1", "")):  # fmt: skip
        source = f"int x; {added}"
        library = Builder(folder)(f"{soname}.{version[2:]}", source, f"-Wl,-soname,{soname}")
        (folder / soname).symlink_to(library.name)
    to_wheel = ("-Wl,-rpath,$ORIGIN/../nvidia/nccl/lib", "-Wl,--disable-new-dtags")
    call = "int added(void); int call(void) { return added(); }"
    build("user/_native.so", call, new / soname, *to_wheel)
    build("alpha_module/_native.so", "extern int x; int *y = &x;", new / soname)
    planted.distribution("nvidia-nccl-cu12", "2.28.9", files=(f"nvidia/nccl/lib/{soname}",))
    planted.distribution("user", files=("user/_native.so",))
    planted.distribution("alpha", files=("alpha_module/_native.so",), requires=(required,))
    _, found = planted.one("CG903", env={"LD_LIBRARY_PATH": str(old)})
    said = [f"remove {old} from LD_LIBRARY_PATH"] * (required == "numpy")  # no order cures it
    assert [one["remedy"] for one in found] == said


def test_folder_of_the_variable_before_the_wheel(planted, build, tmp_path):
    soname = "libcudnn.so.9"
    wheel = build(f"nvidia/cudnn/lib/{soname}", "int v = 95;", f"-Wl,-soname,{soname}")
    old = Builder(tmp_path / "old")("libcudnn.so.9.0.0", "int v=90;", f"-Wl,-soname,{soname}")
    (old.parent / soname).symlink_to(old.name)
    build("alpha/_native.so", "extern int v; int *w = &v;", wheel,
          "-Wl,-rpath,$ORIGIN/../nvidia/cudnn/lib", "-Wl,--enable-new-dtags")  # fmt: skip
    planted.distribution("nvidia-cudnn-cu13", "9.5.0.7", files=(f"nvidia/cudnn/lib/{soname}",))
    planted.distribution("alpha", files=("alpha/_native.so",))
    assert planted.one("CG903") == ("ok", [])
    status, findings = planted.one("CG903", env={"LD_LIBRARY_PATH": str(old.parent)})
    (found,) = findings
    assert status == "warning"
    assert f"alpha would load {soname} (cuDNN) from {old.parent}" in found["what"]
    assert "instead of nvidia-cudnn-cu13" in found["what"]
    assert "LD_LIBRARY_PATH" in found["remedy"]
    torch(planted)  # containers have that variable: its folders need no cuDNN
    for folder, is_told in ((tmp_path, False), (old.parent, True)):
        _, findings = planted.one("CG901", env={"LD_LIBRARY_PATH": str(folder)})
        assert ("CG035" in [one["rule"] for one in findings]) is is_told


STACK = "int answer(void) { return 42; }"
GLIBC_2_41 = """
import os
import posix  # of which the guard has its own functions
posix.confstr = os.confstr = lambda name: "glibc 2.41"
"""


@pytest.mark.parametrize("marked", [True, False])
def test_library_with_an_executable_stack(planted, build, marked):
    """glibc before 2.41 takes it, and dlopen() of later ones does not: here is either."""
    flag = f"-Wl,-z,{'' if marked else 'no'}execstack"
    library = build("engine.libs/libengine-1.so", STACK, flag)
    planted.distribution("engine", "1.0", files=("engine.libs/libengine-1.so",))
    planted.distribution("torch", "2.6.0")
    release = os.confstr("CS_GNU_LIBC_VERSION").partition(" ")[2].split(".")
    is_refused = marked and tuple(map(int, release)) >= (2, 41)
    with pytest.raises(OSError, match="executable stack") if is_refused else nullcontext():
        ctypes.CDLL(str(library))
    assert cudaguard.check_extension(library).ok is not is_refused
    planted.write("sitecustomize.py", GLIBC_2_41)
    _, findings = planted.one("CG902")
    assert [one["what"].partition(": libengine-1.so ")[2] for one in findings] == [
        "would be refused by this glibc (2.41 or newer): it asks for an executable stack."
    ] * marked
    tunables = {"GLIBC_TUNABLES": "glibc.rtld.execstack=2"}
    assert planted.one("CG902", env=tunables)[1] == []


def test_extension_for_numpy_1_that_links_neither_torch_nor_cuda(planted, build):
    body = """
    #include <stdio.h>
    const char *says[] = {"numpy.core.multiarray failed to import",
        "module compiled against ABI version 0x%x but this version of numpy is 0x%x"};
    void *PyInit_fast(void) { puts(says[0]); puts(says[1]); return 0; }
    """
    plain = build("fast.so", body)
    with plain.open("r+b") as file:  # a file of which nobody tells where its constants are
        file.seek(60)
        file.write(b"\0\0")
    build("large.so", body + '__asm__(".text; .space 0x2000000");')  # before the constants
    planted.distribution("fast", "1.0", files=("fast.so", "large.so"))
    planted.distribution("torch", "2.6.0")
    planted.distribution("numpy", "1.26.4")
    assert planted.one("CG902")[1] == []
    shutil.rmtree(planted.folder / "numpy-1.26.4.dist-info")
    planted.distribution("numpy", "2.1.0")
    (found,) = planted.one("CG902")[1]
    assert "fast.so was built for NumPy 1, but NumPy 2.1.0 is installed" in found["what"]
    assert [path.rpartition("/")[2] for path in found["evidence"]] == ["fast.so", "large.so"]


# --- CG909: the guard -------------------------------------------------------------


def test_settings_that_cannot_be_used(planted, child):
    child.write("mine.toml", "mode = 'fast'\n")
    env = {"CUDAGUARD_RULES": "CG001", "CUDAGUARD_CONFIG": "mine.toml"}
    status, findings = planted.one("CG909", env=env)
    assert status == "warning"
    assert "CUDAGUARD_RULES: got 'CG001'" in findings[0]["what"]
    assert "mine.toml: mode: unknown mode 'fast'" in findings[1]["what"]
    assert findings[1]["command"] == "cudaguard rules check mine.toml"
    child.write("mine.toml", "disable = ['CG098']\n")
    assert "rule 'CG098' is not known" in planted.one("CG909", env=env)[1][1]["what"]


def test_switch_of_a_rule_that_nothing_defines(planted, child):
    entry = "[cudaguard.rules]\ntarget = plug:RULES\n"
    planted.distribution("plug", **{"entry_points.txt": entry})
    code = "cudaguard.Rule(id='PLUG1', watch=('target',), needs=('x',), grade='opt-in', why='y.')"
    planted.write("plug.py", f"import cudaguard\nRULES = {code}\n")
    env = {"CUDAGUARD_RULES": "+PLUG1,-PLUG1,+PLUG2,-CG098"}
    status, findings = planted.one("CG909", env=env)
    assert (status, len(findings)) == ("warning", 2)
    assert "rule 'CG098' is not known" in findings[0]["what"]
    assert "rule 'PLUG2' is not known: no configuration file and no" in findings[1]["what"]
    command = (sys.executable, "-m", "cudaguard", "explain")
    env = {"PYTHONPATH": str(planted.folder)}
    assert child.command(*command, "plug1", env=env).stdout.startswith("[PLUG1] A rule about")
    assert "explain PLUG1" in child.command(*command, "PLUG2", env=env, check=False).stderr


def test_configuration_file_that_nobody_names(planted, child):
    child.write("cudaguard.toml", "mode = 'warn'\n")
    status, findings = planted.one("CG909")
    assert status == "ok"
    assert findings[0]["command"] == f"export CUDAGUARD_CONFIG={child.folder}/cudaguard.toml"


def test_variable_that_nobody_reads(planted, root):
    """This interpreter has no start-up file of ours: it lies in no site-packages."""
    code = "from cudaguard.tools.doctor import checks; checks.start_file = lambda: ''"
    planted.write("sitecustomize.py", code)
    _, findings = planted.one("CG909", env={"CUDAGUARD": "fix"})
    assert "has no cudaguard.pth to read it" in findings[0]["what"]
    assert planted.one("CG909", env={"CUDAGUARD": "off"}) == ("ok", [])


def test_working_directory_that_is_gone(child):
    doctor = f"{sys.executable} -m cudaguard doctor --only CG909"
    assert not child.command("sh", "-c", f"mkdir a; cd a; rmdir ../a; exec {doctor}").stderr


# --- surroundings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", ["import ctypes; ctypes.string_at(0)", "while True: pass", "1 / 0", "exit(3)"],
    ids=["crashes", "hangs", "raises", "exits"],
)  # fmt: skip
def test_torch_that_cannot_be_imported_is_not_imported(planted, body):
    torch(planted)
    planted.write("torch/__init__.py", f"{body}\n")
    status, checks = planted.checks(timeout=60)
    assert status in (0, 1)
    assert not [check for check in checks.values() if check["status"] == "broken"]


def test_nothing_on_path_and_no_home(planted):
    env = {"PATH": "", "HOME": "/nonexistent", "USER": "", "LD_LIBRARY_PATH": "/nonexistent"}
    _, checks = planted.checks(env=env)
    assert not [check for check in checks.values() if check["status"] == "broken"]


def test_odd_entries_of_the_path(planted, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    file = planted.write("file")
    env = {"PYTHONPATH": os.pathsep.join(map(str, (loop, closed, file, "/nonexistent")))}
    _, checks = planted.checks(env=env)
    assert not [check for check in checks.values() if check["status"] == "broken"]
