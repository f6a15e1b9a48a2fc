"""Arrays whose work is still pending on a side stream, read on a real GPU."""

from __future__ import annotations

import importlib.util

import pytest

pytestmark = pytest.mark.gpu

# The kernel before the last one takes about a second, so who does not wait reads zeros.
SLOW = """
import torch

COUNT = 1 << 20


class Exported:
    def __init__(self, tensor, stream):
        self.tensor, self.stream = tensor, stream

    @property
    def __cuda_array_interface__(self):
        stream = self.stream.cuda_stream
        return {**self.tensor.__cuda_array_interface__, "version": 3, "stream": stream}


side = torch.cuda.Stream()
filled = torch.zeros(COUNT, device="cuda")
# Each kernel is loaded when it is first used, and that may wait for all streams.
with torch.cuda.stream(side):
    torch.cuda._sleep(1000)
    filled.fill_(0)
torch.as_tensor(torch.zeros(COUNT, device="cuda"), device="cuda").sum().item()
torch.cuda.synchronize()
with torch.cuda.stream(side):
    torch.cuda._sleep(2_000_000_000)
    filled.fill_(1)
array = Exported(filled, side)
"""
WAYS = {
    "as it is": "torch.as_tensor(array, device='cuda')",
    "normalized": "torch.as_tensor(cudaguard.normalize(array, consumer='torch'), device='cuda')",
}


@pytest.mark.parametrize("way", WAYS)
def test_work_on_a_side_stream_is_waited_for(program, way):
    ran = program.run(SLOW + f"print({WAYS[way]}.sum().item() / COUNT, side.query())")
    assert ran.warned == []
    # The first is the fault that the others cure; .item() has waited for the reader only.
    assert ran.out == (["0.0 False"] if way == "as it is" else ["1.0 True"])


def test_host_waits_for_a_consumer_whose_stream_is_not_known(program):
    code = "print(side.query())\ncudaguard.normalize(array, consumer='warp')\nprint(side.query())"
    assert program.run(SLOW + code).out == ["False", "True"]


OTHERS = {
    # Readers that wait themselves: the guard takes nothing from that.
    "cupy": "import cupy\nread = cupy.asarray(array)\nprint(float(read.sum()) / COUNT)",
    "numba": "from numba import cuda\nread = cuda.as_cuda_array(array)\n"
    "print(float(read.copy_to_host().sum()) / COUNT)",
    "nvidia.dali": "from nvidia.dali.backend import TensorGPU\nimport numpy\n"
    "print(float(numpy.array(TensorGPU(array).as_cpu()).sum()) / COUNT)",
}


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("reader", OTHERS)
def test_readers_that_heed_streams_go_on_doing_so(program, reader, guarded):
    names = (reader.partition(".")[0], reader)  # "nvidia" alone may be that of other wheels
    if not all(map(importlib.util.find_spec, names)):
        pytest.skip(f"{reader} is not installed")
    install = "cudaguard.install()\n" if guarded else ""
    assert program.run(install + SLOW + OTHERS[reader]).out == ["1.0"]
