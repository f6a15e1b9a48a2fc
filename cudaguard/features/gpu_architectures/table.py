"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

# What a built-in rule alone asks for.
REPAIRS = {"preload_newer_nvrtc": {"before": "repair:preload_newer_nvrtc"}}

CATEGORY = "ImportOrderWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG893": ("torch has no code for a GPU", "CudaGuardWarning"),
    "CG894": ("torch's NVRTC does not support a GPU", "CudaGuardWarning"),
}
DETECTORS = {
    "detector:ArchitectureDetector": ("begin", "imported:torch", "forget"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG893": (
        "every kernel of torch fails on it with 'no kernel image is available'.",
        "install the torch that the message names",
        "howto/architectures.md",
    ),
    "CG894": (
        "ordinary kernels run. TorchScript fusers and operators such as torch.prod fail.",
        "install the NVRTC that the message names (rule CG033)",
        "howto/architectures.md",
    ),
}
