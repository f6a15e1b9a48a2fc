"""Environment variables that are read once: at which moment each of them becomes useless.

Sources: CUDA programming guide, "CUDA Environment Variables"; torch's ``c10/cuda`` (CUDAFunctions,
CUDAAllocatorConfig); pytorch/pytorch#159641, #104801.
"""

from __future__ import annotations

DRIVER, TORCH = "CUDA is initialized", "torch is imported"

# The short list: setting one of these too late is a fault that users make and cannot see.
LATCHES: dict[str, str] = {
    "CUDA_VISIBLE_DEVICES": DRIVER,
    "CUDA_DEVICE_ORDER": DRIVER,
    "PYTORCH_CUDA_ALLOC_CONF": TORCH,
    "PYTORCH_ALLOC_CONF": TORCH,
}
