"""A build with CUDA, by the real nvcc for a CUDA build of torch; there is no GPU."""

from __future__ import annotations

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
        how = {"CUDA_HOME": str(self.toolkit), "CUDA_VISIBLE_DEVICES": "", **how}
        done = super().load(guard, sources=("small.cu",), **how)
        noise = re.compile(r"^.*(No CUDA runtime is found|TORCH_CUDA_ARCH_LIST).*\n", re.MULTILINE)
        done.stderr = noise.sub("", done.stderr)
        return done

    def flags(self):
        text = (self.built / "build.ninja").read_text(encoding="utf-8")
        return set(re.findall(r"code=(\w+_\d+)", text))


@pytest.fixture
def builder(child, cuda_torch, root, tmp_path):
    return CudaBuilder(child, cuda_torch, root, tmp_path)


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
