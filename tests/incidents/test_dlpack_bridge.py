"""A real reader of DLPack, cuda.core, takes what has only the CUDA array interface."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.incidents

PROGRAM = """
import gc
import sys
import weakref

import cudaguard
import numpy as np
import pycuda.autoprimaryctx
from cuda.core.utils import StridedMemoryView
from pycuda import gpuarray

array = gpuarray.to_gpu(np.arange(6, dtype=np.float32).reshape(2, 3))
owner = weakref.ref(array)
source = array
if sys.argv[1] == "bridge":
    source = cudaguard.normalize(array, consumer="dlpack")
try:
    view = StridedMemoryView.from_dlpack(source, stream_ptr=2)
except Exception as error:
    print(type(error).__name__)
else:
    print(view.shape, view.dtype, view.ptr == int(array.gpudata), view.readonly, view.device_id)
    del array, source
    gc.collect()
    print(owner() is not None)
    del view
    gc.collect()
    print(owner() is None)
"""


def test_pycuda_array_is_lent_and_given_back(run_cuda):
    assert run_cuda(PROGRAM, "raw").out == ["AttributeError"]
    ran = run_cuda(PROGRAM, "bridge")
    assert ran.out == ["(2, 3) float32 True False 0", "True", "True"]
