"""The shortest questions of `gpu_facts`: what streams, contexts and captures do, a second each.

What the guard does for arrays whose work is pending rests on the manual and on a stand-in; these
say whether the driver does as they have it.
"""

from __future__ import annotations

from benchmarks.gpu_questions import Question

# Work that takes a while without a kernel: the C library's usleep, called by the driver.
_SLEEP = """
SLEEP = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)

def made(function, *arguments):
    handle = ctypes.c_void_p()
    ok(getattr(cu(), function)(ctypes.byref(handle), *arguments))
    return handle

def stream(): return made("cuStreamCreate", 1)

def busy(stream): ok(cu().cuLaunchHostFunc(stream, SLEEP, ctypes.c_void_p(500_000)))

def pending(stream): return cu().cuStreamQuery(stream) == 600

def attribute(number, address, kind):
    value = kind()
    status = cu().cuPointerGetAttribute(ctypes.byref(value), number, ctypes.c_uint64(address))
    return f"status {status}" if status else value.value

def exchanged(mode):
    was = ctypes.c_int(mode)
    ok(cu().cuThreadExchangeStreamCaptureMode(ctypes.byref(was)))
    return was.value

def in_thread(function):
    import threading

    answers = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]

initialize()
primary = retain()
ok(cu().cuCtxSetCurrent(primary))
"""
_ARRAY = """
class Array:
    def __init__(self, address, stream):
        self.__cuda_array_interface__ = {
            "shape": (4,), "typestr": "<f4", "data": (address, False), "version": 3,
            "stream": stream,
        }

import cudaguard
"""


def _question(what: str, code: str) -> Question:
    return Question("waits", what, f"{_SLEEP}{_ARRAY}{code}")


WAITS = (
    _question(
        "context and device of memory: allocated, and of a pool",
        """
plain, pool = ctypes.c_uint64(), ctypes.c_uint64()
ok(cu().cuMemAlloc_v2(ctypes.byref(plain), ctypes.c_size_t(64)))
ok(cu().cuMemAllocAsync(ctypes.byref(pool), ctypes.c_size_t(64), None))
tell({name: [attribute(1, address.value, ctypes.c_void_p) == primary.value,
             attribute(1, address.value, ctypes.c_void_p) is None,
             attribute(9, address.value, ctypes.c_int)]
      for name, address in (("plain", plain), ("pool", pool))})
""",
    ),
    _question(
        "normalize waits for a pool's default stream, in a thread without a context",
        """
pool = ctypes.c_uint64()
ok(cu().cuMemAllocAsync(ctypes.byref(pool), ctypes.c_size_t(64), None))
busy(None)
before = pending(None)
def work():
    cudaguard.normalize(Array(pool.value, 1), consumer="warp")
    return current()
left = in_thread(work)
tell(pending_before=before, pending_after=pending(None), current_after=left)
""",
    ),
    *(
        _question(
            f"stream is waited for while another thread captures, mode of this one {mode}",
            f"""
captured, other = stream(), stream()
ok(cu().cuStreamBeginCapture_v2(captured, 0))
def work():
    exchanged({mode})
    ok(cu().cuCtxSetCurrent(primary))
    return cu().cuStreamSynchronize(other)
status = in_thread(work)
graph = ctypes.c_void_p()
tell(synchronize=status, end_of_capture=cu().cuStreamEndCapture(captured, ctypes.byref(graph)))
""",
        )
        for mode in (0, 1, 2)
    ),
    _question(
        "normalize while another thread captures",
        """
captured, other, address = stream(), stream(), ctypes.c_uint64()
ok(cu().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)))
busy(other)
ok(cu().cuStreamBeginCapture_v2(captured, 0))
def work():
    cudaguard.normalize(Array(address.value, other.value), consumer="warp")
    return exchanged(0)
mode = in_thread(work)
graph = ctypes.c_void_p()
ended = cu().cuStreamEndCapture(captured, ctypes.byref(graph))
tell(mode_after=mode, end_of_capture=ended, pending=pending(other))
""",
    ),
    _question(
        "context after cuDevicePrimaryCtxReset, and create_context() then",
        """
first = cudaguard.create_context(0)
before = state()
ok(cu().cuDevicePrimaryCtxReset_v2(0))
after = state()
again = cudaguard.create_context(0)
tell(before=before, after_reset=after, anew=again is not first, then=state())
""",
    ),
    _question(
        "stream that was destroyed, asked for its context in a child process",
        """
lines = [
    "from benchmarks.gpu_helpers import *",
    "initialize()",
    "ok(cu().cuCtxSetCurrent(retain()))",
    "stream, context = ctypes.c_void_p(), ctypes.c_void_p()",
    "ok(cu().cuStreamCreate(ctypes.byref(stream), 1))",
    "ok(cu().cuStreamDestroy_v2(stream))",
    "print(cu().cuStreamGetCtx(stream, ctypes.byref(context)))",
]
command = [sys.executable, "-c", "\\n".join(lines)]
done = subprocess.run(command, capture_output=True, text=True, timeout=60)
tell(status=done.returncode, answer=done.stdout.strip())
""",
    ),
)
WAITS_WITH_TORCH = (
    Question(
        "waits",
        "ms until a kernel that was never used is launched behind a sleep, and one that was",
        """
import torch
x = torch.ones(1 << 20, device="cuda")
x.add_(1)
side = torch.cuda.Stream()
torch.cuda.synchronize()
with torch.cuda.stream(side):
    torch.cuda._sleep(1_000_000)
torch.cuda.synchronize()
with torch.cuda.stream(side):
    torch.cuda._sleep(2_000_000_000)
tell(used=ms(lambda: x.add_(1)), never_used=ms(lambda: torch.erfinv(x)),
     still_asleep=not side.query())
""",
        needs_torch=True,
    ),
)
