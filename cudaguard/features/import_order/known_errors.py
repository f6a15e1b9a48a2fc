"""What packages say that must be imported before others; what it means."""

from __future__ import annotations

from cudaguard.core.known_errors import Explainer, KnownError

KNOWN = (
    KnownError(
        "CG739",
        "Isaac Gym must be imported before torch",
        ("PyTorch was imported before isaacgym",),
        r"PyTorch was imported before isaacgym modules",
        "Isaac Gym refuses to be imported after torch.",
        "put import isaacgym before import torch, and before all that imports torch, in each file "
        "that is run",
        command="cudaguard lint .",
        links=("https://github.com/PKU-MARL/DexterousHands/issues/1",),
        examples=(
            (
                "ImportError: PyTorch was imported before isaacgym modules.  Please import torch "
                "after isaacgym modules."
            ),
        ),
    ),
    KnownError(
        "CG740",
        "unsloth must be imported first",
        ("Unsloth should be imported before",),
        r"Unsloth should be imported before \[?([\w, ]{1,80})\]?",
        "unsloth changes {0} while it is imported, and came too late.",
        "put import unsloth before trl, transformers and peft, and before all that imports them",
        command="cudaguard lint .",
        links=("https://github.com/unslothai/unsloth/issues/2233",),
        nouns=("trl, transformers and peft",),
        examples=(
            (
                "UserWarning: WARNING: Unsloth should be imported before [transformers, trl, "
                "peft] to ensure all optimizations are applied."
            ),
        ),
    ),
    KnownError(
        "CG741",
        "Isaac Sim must be started before its modules are imported",
        ("before SimulationApp was started",),
        r"were loaded before SimulationApp was started",
        "Modules of Omniverse were imported before SimulationApp(...) was called.",
        "call SimulationApp(...) first, and import omni.* and pxr below it",
        links=("https://github.com/isaac-sim/IsaacLab/issues/2047",),
        examples=(
            (
                "Modules: ['omni.isaac.kit.app_framework'] were loaded before SimulationApp was "
                "started and might not be loaded correctly."
            ),
        ),
    ),
)
EXPLAINER = Explainer(KNOWN)
