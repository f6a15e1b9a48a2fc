"""The real CUDA packages do on the stub driver what other tests rely on."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.incidents


def test_pycuda_copies_there_and_back(run_cuda):
    code = """
    import numpy as np
    import pycuda.autoinit
    import pycuda.driver as drv
    import pycuda.gpuarray as ga

    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    g, s, e = ga.to_gpu(a), drv.Stream(), drv.Event()
    print(g.get().tolist() == a.tolist(), g[:, 1:3].get().tolist() == a[:, 1:3].tolist())
    h = ga.to_gpu_async(a, stream=s)
    e.record(s)
    s.wait_for_event(e)
    s.synchronize()
    print(h.get().tolist() == a.tolist(), h.__cuda_array_interface__["stream"])
    print(hex(s.handle))
    """
    ran = run_cuda(code)
    stream = ran.out.pop()
    assert (ran.out, ran.err) == (["True True", "True None"], "")
    calls = ran.called("cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuStreamWaitEvent")
    calls += ran.called("cuStreamSynchronize")
    assert [name for name, _ in calls] == [
        "cuMemcpyHtoDAsync_v2",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuStreamSynchronize",
    ]
    assert all(f"stream={stream}" in arguments for _, arguments in calls)


def test_numba_waits_for_the_stream_that_it_is_told(run_cuda):
    code = """
    import numpy as np
    from numba import cuda

    s = cuda.stream()
    d = cuda.to_device(np.arange(6.0), stream=s)
    s.synchronize()
    print(d.copy_to_host(stream=s).tolist(), flush=True)
    print(d.__cuda_array_interface__["stream"] == int(s.handle), hex(int(s.handle)))
    cuda.as_cuda_array(d)
    """
    ran = run_cuda(code)
    assert ran.err == ""
    assert ran.out[0] == str([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    same, stream = ran.out[1].split()
    assert same == "True"
    assert ran.called("cuStreamSynchronize")[-1] == ("cuStreamSynchronize", f"stream={stream}")
    quiet = run_cuda(code, env={"NUMBA_CUDA_ARRAY_INTERFACE_SYNC": "0"})
    assert len(quiet.called("cuStreamSynchronize")) < len(ran.called("cuStreamSynchronize"))


def test_cuda_core_orders_the_consumer_behind_the_producer(run_cuda):
    code = """
    from cuda.core import Device
    from cuda.core.utils import StridedMemoryView

    device = Device(0)
    device.set_current()
    ours, theirs = device.create_stream(), device.create_stream()
    buffer = device.allocate(64, stream=ours)

    class Producer:
        __cuda_array_interface__ = {
            "shape": (16,), "typestr": "<f4", "data": (int(buffer.handle), False),
            "version": 3, "stream": int(theirs.handle),
        }

    print(hex(int(ours.handle)), hex(int(theirs.handle)))
    view = StridedMemoryView.from_cuda_array_interface(Producer(), stream_ptr=int(ours.handle))
    print(view.shape, view.is_device_accessible)
    """
    ran = run_cuda(code)
    ours, theirs = ran.out[0].split()
    assert (ran.out[1], ran.err) == ("(16,) True", "")
    (_, recorded), (_, waited) = ran.called("cuEventRecord", "cuStreamWaitEvent")
    assert f"stream={theirs}" in recorded
    assert f"stream={ours}" in waited


def test_torch_of_the_suite_is_there_and_without_cuda(run_cuda):
    code = "import numpy, torch\nprint(torch.version.cuda, torch.ones(2).numpy().sum())"
    ran = run_cuda(code)
    assert (ran.out, ran.err) == (["None 2.0"], "")
