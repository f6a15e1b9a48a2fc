"""What packages say that must be imported before others; what it means."""

from __future__ import annotations

from cudaguard.core.known_errors import LIKELY, VAGUE, Explainer, KnownError

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
    ),
    KnownError(
        "CG741",
        "Isaac Sim must be started before its modules are imported",
        ("before SimulationApp was started",),
        r"were loaded before SimulationApp was started",
        "Modules of Omniverse were imported before SimulationApp(...) was called.",
        "call SimulationApp(...) first, and import omni.* and pxr below it",
        links=("https://github.com/isaac-sim/IsaacLab/issues/2047",),
    ),
)
# What no order of imports causes or cures, and deaths without a word: nobody need search for one.
OF_NO_ORDER = (
    KnownError(
        "CG743",
        "a kernel has found a value that is not allowed",
        ("device-side assert triggered", "CUDA_ERROR_ASSERT", "cudaErrorAssert"),
        r"device-side assert triggered|CUDA_ERROR_ASSERT|cudaErrorAssert\b",
        "A kernel has met a value that is not allowed, such as an index or a label out of range. "
        "The order of imports has no part in it.",
        "run it on the CPU, or with CUDA_LAUNCH_BLOCKING=1, to see the line; nothing works on the "
        "GPU in this process after it",
        command="CUDA_LAUNCH_BLOCKING=1 python SCRIPT",
    ),
    KnownError(
        "CG744",
        "a kernel has read or written where it may not",
        ("illegal memory access", "unspecified launch failure", "misaligned address"),
        r"CUDA error: (?:an illegal memory access was encountered|unspecified launch failure|"
        r"misaligned address)|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|MISALIGNED_ADDRESS)",
        "A kernel has read or written where it may not. It is reported by a later call, and the "
        "order of imports has seldom a part in it.",
        "find the kernel with compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1",
        command="compute-sanitizer python SCRIPT",
        certainty=LIKELY,
    ),
    KnownError(
        "CG745",
        "the memory of a GPU is used up",
        ("CUDA out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation"),
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "The memory of the GPU is used up, by this process or by others. The order of imports "
        "has no "
        "part in it.",
        "find out who uses it (nvidia-smi); beside torch keep JAX and TensorFlow from taking "
        "all of it: XLA_PYTHON_CLIENT_PREALLOCATE=false, TF_FORCE_GPU_ALLOW_GROWTH=true "
        "(rules "
        "CG014 and CG015); else smaller batches",
        command="nvidia-smi",
        links=("https://github.com/jax-ml/jax/issues/1075",),
        certainty=LIKELY,
    ),
    KnownError(
        "CG746",
        "a process died of a signal",
        (
            "Segmentation fault",
            "SIGSEGV",
            "Fatal Python error: ",
            "Bus error",
            "exitcode: -11",
            "Illegal instruction",
            "exit code -11",
        ),
        r"Fatal Python error: (?:Segmentation fault|Aborted|Bus error|Illegal instruction)|"
        r"(?:Segmentation fault|Bus error|Illegal instruction)(?: \(core dumped\))?[ "
        r"\t\r]*(?=\n|$)|"
        r"(?:died|killed|terminated|crashed)[^\n]{0,40}SIGSEGV|Signal 11 \(SIGSEGV\)|exit "
        r"?code:? -11",
        "The process died in native code, without a word of what was wrong.",
        "run it under cudaguard run, which names the import or call that it died in and the rule "
        "that fits; or find an order that works with cudaguard bisect",
        command="cudaguard run SCRIPT",
        certainty=VAGUE,
    ),
)
EXPLAINER = Explainer((*KNOWN, *OF_NO_ORDER))
