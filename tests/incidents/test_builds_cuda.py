"""Builds with CUDA, by the real nvcc for a CUDA build of torch; no GPU is asked for.

The stand-ins for driver and NVML show what is asked of them, and have a device where one is wanted.
"""

from __future__ import annotations

import os
import platform
import re
import shutil

import pytest

from .test_builds import Builder

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="the packages of NVIDIA are those of x86-64 Linux",
    ),
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler"),
]

MORE = "#include <cuda_runtime.h>\n__global__ void k(float* x) { x[threadIdx.x] += 1; }"
VERSION = "[] { int v = 0; cudaRuntimeGetVersion(&v); return v; }()"
SOURCES = ("small.cu",)


class CudaBuilder(Builder):
    """Builds with nvcc; `toolkit` is a folder as the toolkit of NVIDIA is."""

    def __init__(self, child, python, root, folder):
        super().__init__(child, python, root, folder)
        (self.wheel,) = python.parent.parent.glob("lib/python3*/site-packages/nvidia/cu13")
        self.toolkit = folder / "cuda-13.0"
        (self.toolkit / "lib64").mkdir(parents=True)
        for name in ("include", "nvvm"):
            (self.toolkit / name).symlink_to(self.wheel / name)
        (self.toolkit / "bin").mkdir()
        for path in (self.wheel / "bin").iterdir():
            (self.toolkit / "bin" / path.name).symlink_to(path)
        # The wheel has no such link, without which nothing can be linked.
        runtime = self.toolkit / "lib64" / "libcudart.so"
        runtime.symlink_to(self.wheel / "lib" / "libcudart.so.13")

    def write(self, value=VERSION, more=MORE):
        super().write(value, more)
        (self.folder / "small.cpp").rename(self.folder / "small.cu")

    def load(self, guard="guarded", **how):
        home = {} if how.pop("no_home", False) else {"CUDA_HOME": str(self.toolkit)}
        how = {**home, "CUDA_VISIBLE_DEVICES": "", **how}
        done = super().load(guard, sources=SOURCES, **how)
        noise = re.compile(r"^.*(No CUDA runtime is found|TORCH_CUDA_ARCH_LIST).*\n", re.MULTILINE)
        done.stderr = noise.sub("", done.stderr)
        return done

    def flags(self):
        text = (self.built / "build.ninja").read_text(encoding="utf-8")
        return set(re.findall(r"code=(\w+_\d+)", text))


@pytest.fixture
def builder(child, cuda_torch, root, tmp_path):
    return CudaBuilder(child, cuda_torch, root, tmp_path)


def test_healthy_build_is_the_same_but_for_the_stamp(builder):
    wanted = {"TORCH_CUDA_ARCH_LIST": "9.0"}
    assert builder.load("unguarded", **wanted).stdout == "answer 13000\n"
    ninja = (builder.built / "build.ninja").read_bytes()
    log = (builder.built / ".ninja_log").read_bytes()
    done = builder.load(**wanted)
    assert (done.stdout, done.stderr) == ("answer 13000\n\n", "")
    assert (builder.built / "build.ninja").read_bytes() == ninja
    assert (builder.built / ".ninja_log").read_bytes() == log


def test_where_no_gpu_is_visible_it_is_built_for_all_that_torch_runs_on(builder):
    unguarded = builder.load("unguarded", more="import torch", check=False)
    assert "IndexError: list index out of range" in unguarded.stderr
    done = builder.load(more="import torch; print(torch._C._cuda_getArchFlags())")
    flags, answer, repair = done.stdout.splitlines()
    assert answer == "answer 13000"
    assert repair.startswith("CG031 TORCH_CUDA_ARCH_LIST=7.5;8.0;")
    built = {flag for flag in flags.split() if flag.startswith("sm_")}
    assert builder.flags() - built == {"compute_120"}
    assert builder.flags() > built
    assert done.stderr == ""


def test_architectures_of_the_visible_devices_without_cuda(builder, driver_stubs, tmp_path):
    log = tmp_path / "calls"
    capability = ["8.0", "9.0"]
    devices = driver_stubs.environment(devices=2, log=log, capability=capability)
    done = builder.load(CUDA_VISIBLE_DEVICES="0,1", CUDA_DEVICE_ORDER="PCI_BUS_ID", **devices)
    assert "CG031 TORCH_CUDA_ARCH_LIST" not in done.stdout  # two kinds, by number: torch asks
    log.unlink()
    devices = driver_stubs.environment(devices=2, log=log, capability=["9.0", "9.0"])
    shutil.rmtree(builder.built)
    done = builder.load(CUDA_VISIBLE_DEVICES="0,1", **devices)
    assert done.stdout.splitlines()[1] == "CG031 TORCH_CUDA_ARCH_LIST=9.0+PTX"
    assert builder.flags() == {"sm_90", "compute_90"}
    called = {call.name for call in driver_stubs.calls(log)}
    assert "nvmlDeviceGetCudaComputeCapability" in called
    assert "cuInit" not in called


IMPORT = """
import os, sys
if "guarded" in sys.argv:
    import cudaguard; cudaguard.install()
import torch.utils.cpp_extension
assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ
"""


def test_import_of_the_module_does_not_start_cuda(builder, driver_stubs, tmp_path):
    def called(guard):
        log = tmp_path / guard
        env = driver_stubs.environment(devices=1, log=log, capability="9.0")
        env = builder.environment(CUDA_HOME=str(builder.toolkit), **env)
        builder.child.python(IMPORT, guard, python=str(builder.python), env=env)
        return {call.name for call in driver_stubs.calls(log)}

    assert "cuInit" in called("unguarded")
    assert "cuInit" not in called("guarded")


@pytest.mark.parametrize("kind", ["script", "link"])
def test_nvcc_that_lies_elsewhere(builder, kind):
    """As in /usr/local/bin: torch takes the folder above for the toolkit."""
    script = f'#!/bin/sh\nexec {builder.toolkit}/bin/nvcc "$@"\n'
    local = builder.child.write("local/bin/nvcc", script)
    local.chmod(0o755)
    if kind == "link":
        real = builder.toolkit / "bin" / "nvcc"
        real.unlink()
        shutil.copy2(builder.wheel / "bin" / "nvcc", real)
        local.unlink()
        local.symlink_to(real)
    variables = {"no_home": True, "TORCH_CUDA_ARCH_LIST": "9.0"}
    variables["PATH"] = f"{local.parent}{os.pathsep}{builder.environment()['PATH']}"
    assert "RuntimeError Error building extension" in builder.load("unguarded", **variables).stdout
    done = builder.load(**variables)
    place = "torch.utils.cpp_extension.CUDA_HOME"
    assert done.stdout.splitlines() == ["answer 13000", f"CG031 {place}"]
    assert done.stderr == ""
    told = builder.load(**{**variables, "no_home": False, "CUDA_HOME": str(local.parent.parent)})
    assert f"remedy: set CUDA_HOME to {builder.toolkit}" in told.stderr  # it was said by the user


def test_folder_of_the_wheel_is_no_toolkit(builder):
    variables = {"CUDA_HOME": str(builder.wheel), "TORCH_CUDA_ARCH_LIST": "9.0"}
    done = builder.load(**variables)
    assert "cannot find -lcudart" in done.stdout
    assert f"[CG888] torch uses {builder.wheel} as the CUDA toolkit, but it has no" in done.stderr
    assert "found by CUDA_HOME" in done.stderr


def test_no_toolkit(builder):
    more = "import torch.utils.cpp_extension as cpp; cpp.CUDA_HOME = None"
    done = builder.load(more=more, TORCH_CUDA_ARCH_LIST="9.0")
    assert "OSError CUDA_HOME environment variable is not set" in done.stdout
    assert "[CG888] torch finds no CUDA tool" in done.stderr


def test_nvcc_of_another_cuda_is_told_of_where_torch_says_nothing(builder):
    """The real nvcc, but for the version that it says it is of."""
    older = builder.child.write(
        "older/nvcc",
        f"""\
        #!/bin/sh
        [ "$1" = --version ] && exec echo 'Cuda compilation tools, release 12.4, V12.4.131'
        exec {builder.toolkit}/bin/nvcc "$@"
        """,
    )
    older.chmod(0o755)
    variables = {"PYTORCH_NVCC": str(older), "TORCH_CUDA_ARCH_LIST": "9.0"}
    unguarded = builder.load("unguarded", **variables)
    assert (unguarded.stdout, unguarded.stderr) == ("answer 13000\n", "")
    done = builder.load(**variables)
    assert done.stdout == "answer 13000\n\n"
    assert "[CG889] nvcc is from CUDA 12.4, but this torch is built for CUDA 13.0" in done.stderr
    assert f"{older}, found by PYTORCH_NVCC" in done.stderr


def test_compiler_that_nvcc_refuses(builder):
    """By a toolkit whose header takes none but ancient ones: nvcc itself refuses, too."""
    include = builder.toolkit / "include"
    include.unlink()
    shutil.copytree(builder.wheel / "include" / "crt", include / "crt")
    # GCC goes by where a link leads to if that is shorter: it would find the wheel's own `crt`.
    shutil.copy(builder.wheel / "include" / "cuda_runtime.h", include)
    for path in (builder.wheel / "include").iterdir():
        if path.name not in ("crt", "cuda_runtime.h"):
            (include / path.name).symlink_to(path)
    header = include / "crt" / "host_config.h"
    text = header.read_text(encoding="utf-8")
    text = re.sub(r"__GNUC__ > 1\d", "__GNUC__ > 4", text)
    header.write_text(re.sub(r"later than 1\d", "later than 4", text), encoding="utf-8")
    done = builder.load(TORCH_CUDA_ARCH_LIST="9.0")
    assert "unsupported GNU version" in done.stdout
    assert "[CG890] gcc is GCC" in done.stderr
    allowed = builder.load(
        TORCH_CUDA_ARCH_LIST="9.0", NVCC_APPEND_FLAGS="-allow-unsupported-compiler"
    )
    assert allowed.stdout == "answer 13000\n\n"
    assert allowed.stderr == ""
