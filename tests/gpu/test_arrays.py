"""Arrays whose work is still pending on a side stream, read by a real torch on a real GPU."""

from __future__ import annotations

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
torch.cuda.synchronize()
with torch.cuda.stream(side):
    torch.cuda._sleep(2_000_000_000)
    filled.fill_(1)
array = Exported(filled, side)
"""
WAYS = {
    "as it is": "torch.as_tensor(array, device='cuda')",
    "normalised": "torch.as_tensor(cudaguard.normalize(array, consumer='torch'), device='cuda')",
    "by rule": "torch.as_tensor(array, device='cuda')",
    "dlpack": "torch.from_dlpack(cudaguard.normalize(array, consumer='dlpack'))",
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


def test_memory_that_is_lent_stays_until_torch_has_done_with_it(program):
    ran = program.run(
        SLOW
        + """
import gc, weakref
owner = weakref.ref(array)
lent = torch.from_dlpack(cudaguard.normalize(array, consumer="dlpack"))
print(lent.data_ptr() == filled.data_ptr())
del array
gc.collect()
print(owner() is not None)
del lent
gc.collect()
print(owner() is None)
"""
    )
    assert ran.out == ["True"] * 3
