"""Look at the type that DALI exports an array of 32-bit floats with. Contains no cudaguard."""

import sys

import nvidia.dali
from nvidia.dali.backend import TensorGPU


class Array:
    __cuda_array_interface__ = {
        "shape": (4, 4),
        "typestr": "<f4",
        "data": (0x1000, False),
        "version": 3,
    }


exported = TensorGPU(Array(), device_id=0).__cuda_array_interface__["typestr"]
print(f"DALI exports 32-bit floats as {exported!r}")
sys.exit(exported != "<f4")
