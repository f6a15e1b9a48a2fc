"""Builds of extensions with torch: locks that stay, tools that are not found or do not fit."""

from __future__ import annotations

from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG031",
        title="builds with torch.utils.cpp_extension get the tools and variables that they need",
        watch=("torch.utils.cpp_extension",),
        actions=({"prepare_builds": True},),
        why=(
            "A build needs ninja on PATH, and a CUDA toolkit and compiler that fit torch. "
            "Without a GPU it needs TORCH_CUDA_ARCH_LIST too. torch seldom names what is "
            "missing, and reuses builds made for another torch."
        ),
        links=(
            "https://github.com/pytorch/pytorch/issues/68905",
            "https://github.com/Dao-AILab/flash-attention/issues/2079",
            "https://github.com/SarahWeiii/diso/issues/25",
        ),
        verified="2026-11-20: torch 2.6.0 (CUDA 12.4), 2.11.0 (13.0), 2.13.0 (CPU), nvcc 13.0",
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
