"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.verbs import SWITCH, Verb

VERBS = (
    Verb(
        "preload_newer_nvrtc",
        SWITCH,
        True,
        "Load an installed NVRTC that supports the GPUs here before torch is imported.",
        {"before": "repair:preload_newer_nvrtc"},
    ),
    Verb(
        "use_newer_ptxas",
        SWITCH,
        True,
        "Have Triton call an installed ptxas that supports the GPUs here.",
        {"before": "repair:use_newer_ptxas"},
        grades=("opt-in",),
    ),
    Verb(
        "disable_fusers",
        SWITCH,
        True,
        "Switch off the fusers of TorchScript for GPUs.",
        {"after": "repair:disable_fusers"},
        grades=("opt-in",),
    ),
)

CATEGORY = "ImportOrderWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG893": ("torch has no code for a GPU", "CudaGuardWarning"),
    "CG894": ("torch's NVRTC does not support a GPU", "CudaGuardWarning"),
    "CG895": ("Triton's ptxas does not support a GPU", "CudaGuardWarning"),
    "CG897": ("CuPy cannot compile for a GPU", "CudaGuardWarning"),
    "CG898": ("numba-cuda cannot compile for a GPU", "CudaGuardWarning"),
    "CG899": ("the driver is too old for the code", "CudaGuardWarning"),
}
DETECTORS = {
    "detector:ArchitectureDetector": (
        "begin",
        "imported:torch",
        "imported:triton",
        "imported:cupy",
        "imported:numba.cuda",
        "loaded:libnvrtc.so",
        "loaded:libnvJitLink.so",
        "forget",
    ),
}
KNOWN_ERRORS = "known_errors.explainer:EXPLAINER"
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
    "CG895": (
        "every Triton kernel, also of torch.compile, fails on it.",
        "upgrade triton, or set TRITON_PTXAS_PATH to a newer ptxas (rule CG038)",
        "howto/architectures.md",
    ),
}
