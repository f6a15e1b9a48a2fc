"""Arrays whose work is still pending on a side stream, read by a real torch on a real GPU."""

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
    "by rule": "torch.as_tensor(array, device='cuda')",
}


@pytest.mark.parametrize("way", WAYS)
def test_work_on_a_side_stream_is_waited_for(program, way):
    install = "cudaguard.install(enable=['CG022'])\n" if way == "by rule" else ""
    ran = program.run(install + SLOW + f"print({WAYS[way]}.sum().item() / COUNT, side.query())")
    assert ran.warned == []
    # The first is the fault that the others cure; .item() has waited for the reader only.
    assert ran.out == (["0.0 False"] if way == "as it is" else ["1.0 True"])


def test_host_waits_for_a_consumer_whose_stream_is_not_known(program):
    code = "print(side.query())\ncudaguard.normalize(array, consumer='warp')\nprint(side.query())"
    assert program.run(SLOW + code).out == ["False", "True"]


def test_stream_that_a_reader_has_is_the_one_that_waits_and_the_host_goes_on(program):
    ran = program.run(
        SLOW
        + """
reader = torch.cuda.Stream()
with torch.cuda.stream(reader):
    read = torch.as_tensor(cudaguard.normalize(array, consumer="torch"), device="cuda")
    total = read.sum()
print(side.query(), reader.query())
print(total.item() / COUNT)
"""
    )
    assert ran.out == ["False False", "1.0"]


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
    if importlib.util.find_spec(reader.partition(".")[0]) is None:
        pytest.skip(f"{reader} is not installed")
    install = "cudaguard.install()\n" if guarded else ""
    assert program.run(install + SLOW + OTHERS[reader]).out == ["1.0"]


def test_array_of_numba_s_default_stream_is_waited_for(program):
    """It exports stream 0 unguarded, which torch does not look at either way."""
    if importlib.util.find_spec("numba") is None:
        pytest.skip("numba is not installed")
    ran = program.run(
        "cudaguard.install(enable=['CG022'])\nimport torch\nfrom numba import cuda\n"
        "source = torch.ones(1 << 20, device='cuda')\ntorch.cuda.synchronize()\n"
        "array = cuda.device_array(1 << 20, 'f4', stream=cuda.default_stream())\n"
        "print(array.__cuda_array_interface__['stream'])\n"
        "array.copy_to_device(cuda.as_cuda_array(source), stream=cuda.default_stream())\n"
        "print(torch.as_tensor(array, device='cuda').sum().item() / (1 << 20))\n"
    )
    assert ran.out == ["1", "1.0"]
