"""Packages that ask for an order themselves."""

from __future__ import annotations

from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG011",
        title="isaacgym refuses to be imported after torch",
        watch=("torch",),
        dist=("isaacgym",),
        needs=("isaacgym",),
        grade="opt-in",
        why=(
            "isaacgym raises 'PyTorch was imported before isaacgym modules' once torch is there. "
            "Import isaacgym before torch and before every package that imports torch."
        ),
        links=(
            "https://github.com/PKU-MARL/DexterousHands/issues/1",
            "https://github.com/isaac-sim/IsaacGymEnvs/issues/175",
        ),
    ),
    Rule(
        id="CG012",
        title="isaacgym imported before pinocchio breaks pinocchio's lists of strings",
        watch=("isaacgym",),
        dist=("isaacgym",),
        when={"dists": {"pin": ""}},
        needs=("pinocchio",),
        grade="opt-in",
        why=(
            "isaacgym replaces the conversion of C++ lists of strings that pinocchio uses, and "
            "pinocchio fails if it comes second: pinocchio, then isaacgym, then torch."
        ),
        links=("https://github.com/dexsuite/dex-retargeting/issues/23",),
    ),
)
