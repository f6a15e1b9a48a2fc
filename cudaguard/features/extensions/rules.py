"""Packages that fit one another only in pairs of releases, which their metadata do not say."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.system.facts import PAIRS

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG048",
        title="torchcodec was made for another torch",
        watch=("torchcodec",),
        when={"dists": {"torchcodec": "", "torch": ""}, "unless": PAIRS},
        grade="report",
        why="Each version of torchcodec is made for certain versions of torch. With others it "
        "was reported to fail with 'Could not load libtorchcodec', caused by an undefined "
        "symbol such as torch_from_blob.",
        links=(
            "https://github.com/meta-pytorch/torchcodec/issues/1131",
            "https://github.com/ace-step/ACE-Step-1.5/issues/1018",
            "https://github.com/meta-pytorch/torchcodec#installing-torchcodec",
        ),
        verified="2026-11-27: torchcodec 0.17.0 with torch 2.8.0",
    ),
    Rule(
        id="CG049",
        title="usd-core from pip conflicts with Isaac Sim's own USD",
        watch=("isaacsim", "isaaclab", "omni.isaac"),
        dist=("usd-core", "usd-exchange"),
        grade="report",
        why="Isaac Sim has its own USD. A second copy in the process was reported to fail with "
        "'TfType ... already has an associated C++ type'. Uninstall usd-core and "
        "usd-exchange.",
        links=("https://github.com/isaac-sim/IsaacLab/issues/5025",),
    ),
)

DETECTORS = {"detector:ExtensionDetector": ()}
KNOWN_ERRORS = "known_errors:EXPLAINER"
