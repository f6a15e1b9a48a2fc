"""Errors of CUDA programs that no order of imports causes or cures, and deaths without a word."""

from __future__ import annotations

from cudaguard.core.known_errors import LIKELY, VAGUE, Explainer, KnownError

KNOWN = (
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
        examples=("RuntimeError: CUDA error: device-side assert triggered",),
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
        examples=(
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "RuntimeError: CUDA error: unspecified launch failure",
            "RuntimeError: CUDA error: misaligned address",
        ),
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
        examples=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        ),
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
        examples=(
            "Segmentation fault (core dumped)",
            "Fatal Python error: Segmentation fault",
            "Bus error (core dumped)",
            "Illegal instruction (core dumped)",
            "exitcode: -11",
        ),
    ),
)
EXPLAINER = Explainer(KNOWN)
