"""Hand DALI arrays of the forms that other libraries export. Contains no cudaguard."""

import sys

import nvidia.dali
from nvidia.dali.backend import TensorGPU


class Array:
    def __init__(self, **changes):
        entries = {"shape": (4, 4), "typestr": "<f4", "data": (0x1000, False), "version": 3}
        self.__cuda_array_interface__ = {**entries, **changes}


TensorGPU(Array(), device_id=0)  # what DALI reads rightly
for name, changes in (("stream None", {"stream": None}), ("a list as shape", {"shape": [4, 4]})):
    try:
        TensorGPU(Array(**changes), device_id=0)
    except Exception as error:
        print(f"DALI refuses an array with {name}: {type(error).__name__}")
        sys.exit(1)
print("DALI takes arrays with stream None and with a list as shape")
