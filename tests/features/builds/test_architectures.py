"""For which GPUs torch builds where none is visible; nvcc is a program that answers as it does."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from cudaguard.core.dispatch import Dispatch
from cudaguard.core.registry import entry_of
from cudaguard.features.builds.repair import MODULE, with_architectures
from cudaguard.tools.known import RULES

NVCC = """#!/bin/sh
[ "$1" = --list-gpu-arch ] && printf 'compute_75\\ncompute_80\\ncompute_90\\ncompute_100\\n'
"""


@pytest.fixture
def nvcc(tmp_path, monkeypatch):
    """A torch without a GPU, and its compiler, which lies in the folder of the toolkit."""
    path = tmp_path / "bin" / "nvcc"
    path.parent.mkdir()
    path.write_text(NVCC, encoding="utf-8")
    path.chmod(0o755)
    flags = "sm_50 sm_75 sm_90 sm_90a sm_100 compute_120"
    core = SimpleNamespace(_cuda_getArchFlags=lambda: flags)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=core))
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(CUDA_HOME=str(tmp_path)))
    for name in ("TORCH_CUDA_ARCH_LIST", "PYTORCH_NVCC"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def build():
    """Asks for the flags of a build as torch does; returns them and what was repaired."""

    def build(mode="fix", original=lambda _: [][-1]):
        core = Dispatch()
        core.reporter.mode = mode
        (rule,) = (rule for rule in RULES if rule.id == "CG031")
        request = core.repairs.request(entry_of(rule), ("prepare_builds",), MODULE)
        found = with_architectures(request, original, request.permit)(["-O2"])
        return found, [repair.subject for repair in core.reporter.repairs]

    return build


@pytest.mark.usefixtures("nvcc")
def test_all_that_torch_and_the_compiler_know(build):
    assert build() == (
        [
            "-gencode=arch=compute_100,code=compute_100",
            "-gencode=arch=compute_100,code=sm_100",
            "-gencode=arch=compute_75,code=sm_75",
            "-gencode=arch=compute_90,code=sm_90",
        ],
        ["TORCH_CUDA_ARCH_LIST=7.5;9.0;10.0+PTX"],
    )


@pytest.mark.usefixtures("nvcc")
def test_what_torch_finds_is_left_alone(build):
    assert build(original=lambda flags: flags) == (["-O2"], [])


@pytest.mark.parametrize("why", ["mode", "variable", "no nvcc", "broken nvcc", "no CUDA"])
def test_where_nothing_is_certain_torchs_error_passes(build, nvcc, monkeypatch, why):
    if why == "variable":
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "native")
    elif why == "no nvcc":
        nvcc.unlink()
    elif why == "broken nvcc":
        nvcc.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    elif why == "no CUDA":
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=None))
    with pytest.raises(IndexError):
        build("warn" if why == "mode" else "fix")


def test_compiler_that_was_chosen(build, nvcc, monkeypatch):
    chosen = nvcc.rename(nvcc.parent / "an nvcc")
    monkeypatch.setenv("PYTORCH_NVCC", f"env '{chosen}'")
    assert build()[1] == ["TORCH_CUDA_ARCH_LIST=7.5;9.0;10.0+PTX"]
