"""What the programs of `gpu_facts` have at hand: ctypes calls of the driver, clocks, NVML."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import subprocess
import sys
import time

MARK = "measured: "  # before the answer, as a library may print whatever it likes


def tell(*words, **answer):
    print(MARK + json.dumps(words[0] if words else answer), flush=True)


def cu():
    return ctypes.CDLL("libcuda.so.1")


def ok(status):
    assert status == 0, f"the driver answers {status}"


def initialize():
    ok(cu().cuInit(0))


def retain():
    context = ctypes.c_void_p()
    ok(cu().cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    return context


def own():
    context = ctypes.c_void_p()
    ok(cu().cuCtxCreate_v2(ctypes.byref(context), 0, 0))
    return context


def current():
    context = ctypes.c_void_p()
    ok(cu().cuCtxGetCurrent(ctypes.byref(context)))
    return context.value


def count():
    number = ctypes.c_int()
    ok(cu().cuDeviceGetCount(ctypes.byref(number)))
    return number.value


def asked():
    return cu().cuDeviceGetCount(ctypes.byref(ctypes.c_int()))


def ms(function):
    start = time.perf_counter()
    function()
    return round((time.perf_counter() - start) * 1e3, 3)


def us(function, loops=2000):
    """The median of nine series."""

    def series():
        start = time.perf_counter()
        for _ in range(loops):
            function()
        return (time.perf_counter() - start) / loops * 1e6

    return round(sorted(series() for _ in range(9))[4], 3)


FIRST_DEVICE = """
import ctypes
cu, uuid = ctypes.CDLL("libcuda.so.1"), (ctypes.c_ubyte * 16)()
assert cu.cuInit(0) == 0 and cu.cuDeviceGetUuid(uuid, 0) == 0
h = bytes(uuid).hex()
print(f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}")
"""


@functools.cache
def device():
    """NVML's handle of CUDA's first device: by UUID, as its number is another thing there.

    Asked in another process, as this one may not have initialized CUDA yet.
    """
    import pynvml

    command = [sys.executable, "-c", FIRST_DEVICE]
    uuid = subprocess.check_output(command, text=True).strip()
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())


def mib():
    """What is in use on the device, by whomever; None where NVML cannot tell."""
    try:
        import pynvml

        return pynvml.nvmlDeviceGetMemoryInfo(device()).used / 2**20
    except Exception:
        return None


def more(before, after):
    """How many MiB have come in between."""
    return "unknown" if before is None or after is None else round(after - before)


def first_line(error):
    """Name and text of an error, on part of a line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:90]}"


def threads():
    names = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as file:
            names.append(file.read().strip())
    return f"{len(names)} ({', '.join(sorted(set(names)))})"


def state():
    """What the guard's own probe says, in words."""
    from cudaguard.system.driver import Driver

    seen = Driver().state()
    if not seen.is_initialized:
        return "loaded" if seen.is_mapped else "not loaded"
    return f"initialized, contexts {list(seen.active)}, current {seen.current}"


def in_fork(function):
    """What a forked child says; the parent's answer is that."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = function()
        except BaseException as error:
            answer = first_line(error)
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "the child died"
