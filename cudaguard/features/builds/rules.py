"""Builds of extensions with torch: locks that stay, and no GPU to build for."""

from __future__ import annotations

from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG031",
        title="torch does not know for which GPUs to build where none is visible",
        watch=("torch.utils.cpp_extension",),
        actions=({"prepare_builds": True},),
        why=(
            "Where no GPU is visible and TORCH_CUDA_ARCH_LIST is not set, as in docker build and "
            "on login nodes, torch fails with 'IndexError: list index out of range'."
        ),
        links=(
            "https://github.com/pytorch/pytorch/issues/137261",
            "https://github.com/pytorch/extension-cpp/issues/71",
        ),
        verified="2026-11-20: torch 2.13.0 (CUDA 13.0), nvcc 13.0",
    ),
    Rule(
        id="CG032",
        title="the lock of a build that was killed stops no later build",
        watch=("torch.utils.cpp_extension",),
        actions=({"break_stale_locks": True},),
        why=(
            "A killed build leaves its lock, and load() waits for it without a limit and "
            "without a message. torch 2.14 and later release the lock with its holder."
        ),
        links=(
            "https://github.com/pytorch/pytorch/pull/190543",
            "https://github.com/pytorch/pytorch/issues/189245",
            "https://github.com/sgl-project/sglang/issues/38408",
        ),
        fixed_in="torch 2.14.0",
        verified="2026-11-20: torch 2.13.0",
    ),
)
