"""Builds of extensions with torch where there is no GPU to build for."""

from __future__ import annotations

from cudaguard.core.table import Verb, github
from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG031",
        title="torch does not know for which GPUs to build where none is visible",
        watch=("torch.utils.cpp_extension",),
        when={"platform": "linux"},
        actions=({"prepare_builds": True},),
        why="Where no GPU is visible and TORCH_CUDA_ARCH_LIST is not set, as in docker build and "
        "on login nodes, torch fails with 'IndexError: list index out of range'.",
        links=github("pytorch/pytorch/issues/137261", "pytorch/extension-cpp/issues/71"),
        verified="2026-11-20: torch 2.13.0 (CUDA 13.0), nvcc 13.0",
    ),
)

VERBS = (
    Verb("prepare_builds", "switch", True,
      "Where no GPU is visible, have torch build extensions for all that it supports.",
      {"after": "repair:prepare_builds"}),
)  # fmt: skip
CATEGORY = "ExtensionWarning"
