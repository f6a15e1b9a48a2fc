"""The stub drivers keep the driver's contract, as far as tests of the guard rely on it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .. import native_fixtures

DRIVER = '''
import ctypes, os, threading
from ctypes import byref, c_void_p

cu = ctypes.CDLL("libcuda.so.1")

def number(function, *arguments):
    """What a function writes to its first argument, or how it failed."""
    out = ctypes.c_int()
    rc = getattr(cu, function)(byref(out), *arguments)
    return f"error {rc}" if rc else out.value

def handle(function, *arguments):
    out = c_void_p()
    rc = getattr(cu, function)(byref(out), *arguments)
    return f"error {rc}" if rc else out.value

def text(function, device):
    out = ctypes.create_string_buffer(64)
    rc = getattr(cu, function)(out, 64, device)
    return f"error {rc}" if rc else out.value.decode()

def uuid(device, function="cuDeviceGetUuid_v2"):
    out = (ctypes.c_ubyte * 16)()
    rc = getattr(cu, function)(out, device)
    return f"error {rc}" if rc else bytes(out).hex()

def active(device):
    flags, state = ctypes.c_uint(), ctypes.c_int()
    rc = cu.cuDevicePrimaryCtxGetState(device, byref(flags), byref(state))
    return f"error {rc}" if rc else state.value

def current():
    return handle("cuCtxGetCurrent")

def in_child(function):
    """Call a function in a child made by fork."""
    if os.fork() == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    assert os.wait()[1] == 0

def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()

import functools
print = functools.partial(print, flush=True)
'''


@pytest.fixture
def run(child, driver_stubs):
    """Runs code that calls the driver; returns the lines it prints. Options are the controls."""

    def run(code: str, stubs=driver_stubs, **controls) -> list[str]:
        child.write("driver.py", DRIVER)
        child.write("main.py", "from driver import *\n")
        with open(child.folder / "main.py", "a") as main:
            main.write(code)
        environment = stubs.environment(**controls)
        return child.python("import main", env=environment).stdout.splitlines()

    return run


@pytest.fixture
def log(tmp_path):
    return tmp_path / "calls.log"


def test_all_compile_without_a_warning(driver_stubs, tmp_path):
    for source in ("stub_cuda.c", "stub_nvml.c", *native_fixtures.WIDE):
        command = [driver_stubs.compiler, *native_fixtures.WARNINGS, "-Werror", "-O1", "-fPIC"]
        command += ["-c", "-o", str(tmp_path / "out.o"), str(native_fixtures.SOURCES / source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_nothing_but_version_and_errors_works_before_initialization(run):
    code = """
print(number("cuDriverGetVersion"), cu.cuGetErrorName(3, byref(c_void_p())))
print(number("cuDeviceGetCount"), text("cuDeviceGetName", 0), uuid(0), active(0))
print(handle("cuDevicePrimaryCtxRetain", 0), handle("cuCtxCreate_v2", 0, 0))
print(current(), number("cuCtxGetDevice"), handle("cuCtxPopCurrent_v2"))
print(cu.cuInit(1), cu.cuInit(0), number("cuDeviceGetCount"), active(0), current())
"""
    assert run(code, driver_version=12040) == [
        "12040 0",
        "error 3 error 3 error 3 error 3",
        "error 3 error 3",
        "error 3 error 3 error 3",
        "1 0 2 0 None",
    ]


# CUDA_VISIBLE_DEVICES, and what is seen of three devices A, B, C, of which C is the fastest.
VISIBLE = {
    "2,0": "AC",
    " 1 , 2": "BA",
    "1,7,0": "B",
    "1,-1,0": "B",
    "1,x": "B",
    "0,1,0": "",
    "-1": "",
    "": "",
    "7": "",
    "GPU-c1,GPU-c0a1": "BA",
    "GPU-c1,GPU-c": "B",  # fits all three
    "GPU-c1,0": "B",
    "GPU-c0,GPU-c0a": "",
    "GPU-e": "",
    "MIG-1": "",
    "GPU-c1,MIG-1": "B",
}


def test_visible_devices(run):
    code = f"""
def show():
    rc = cu.cuInit(0)
    count = 0 if rc else number("cuDeviceGetCount")
    print(rc, [text("cuDeviceGetName", d)[-1] for d in range(count)])
in_child(show)
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
in_child(show)
os.environ["CUDA_VISIBLE_DEVICES"] = "2,0"
in_child(show)
del os.environ["CUDA_DEVICE_ORDER"]
for visible in {list(VISIBLE)}:
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    in_child(show)
"""
    plain, by_bus, chosen, *lines = run(code, devices=3)
    assert plain == "0 ['C', 'B', 'A']"
    assert by_bus == "0 ['A', 'B', 'C']"
    assert chosen == "0 ['C', 'A']"
    expected = [f"{0 if names else 100} {list(names)}" for names in VISIBLE.values()]
    assert dict(zip(VISIBLE, lines)) == dict(zip(VISIBLE, expected))


def test_mig_instance_is_one_device_with_a_uuid_of_its_own(run):
    name = "MIG-12345678-9abc-def0-1234-56789abcdef0"
    code = """
print(cu.cuInit(0), number("cuDeviceGetCount"), text("cuDeviceGetName", 0))
print(uuid(0), uuid(0, "cuDeviceGetUuid")[:2])
"""
    assert run(code, devices=3, visible=f"{name},{name}", mig={name: 1}) == [
        "0 1 Stub GPU B MIG 1g.5gb",
        "123456789abcdef0123456789abcdef0 c1",
    ]


def test_first_mig_instance_is_the_only_device_where_nothing_is_named(run):
    names = {"MIG-12345678-9abc-def0-1234-56789abcdef0": 1, "MIG-2": 0}
    code = 'print(cu.cuInit(0), number("cuDeviceGetCount"), text("cuDeviceGetName", 0))'
    assert run(code, devices=3, mig=names) == ["0 1 Stub GPU B MIG 1g.5gb"]


def test_environment_is_read_by_the_first_successful_initialization(run):
    code = """
os.environ["CUDA_VISIBLE_DEVICES"] = ""
print(cu.cuInit(0), number("cuDeviceGetCount"))
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
print(cu.cuInit(0), number("cuDeviceGetCount"))
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2"
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
print(cu.cuInit(0), number("cuDeviceGetCount"), text("cuDeviceGetName", 0))
"""
    assert run(code, devices=3) == ["100 error 3", "0 1", "0 1 Stub GPU B"]


def test_forked_child_is_refused_for_good_if_the_parent_had_initialized(run):
    code = """
def touch():
    print(cu.cuInit(0), number("cuDeviceGetCount"), active(0), number("cuCtxGetDevice"))
def version():
    print(number("cuDriverGetVersion"))
number("cuDriverGetVersion")
in_child(lambda: (version(), touch()))
print(number("cuDeviceGetCount"))
print(cu.cuInit(0))
handle("cuCtxCreate_v2", 0, 1)
in_child(lambda: (touch(), in_child(touch), version()))
touch()
"""
    assert run(code) == [
        "13000",
        "0 2 0 error 201",
        "error 3",
        "0",
        "3 error 3 error 3 error 3",
        "3 error 3 error 3 error 3",
        "13000",
        "0 2 0 1",
    ]


def test_failed_initialization_does_not_spoil_the_child(run):
    code = """
print(cu.cuInit(0))
del os.environ["STUB_CUDA_RC"]
in_child(lambda: print(cu.cuInit(0)))
"""
    assert run(code, rc={"cuInit": 803}) == ["803", "0"]


def test_fork_while_another_thread_is_in_a_call(run):
    code = """
import time
stop = []
def work():
    while not stop: cu.cuInit(0)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
def touch():
    assert cu.cuInit(0) == 3
for _ in range(5): in_child(touch)
stop.append(1)
print("alive")
"""
    assert run(code) == ["alive"]


def test_primary_context_is_counted_and_touches_no_thread(run):
    code = """
cu.cuInit(0)
first = handle("cuDevicePrimaryCtxRetain", 1)
print(active(0), active(1), current())
print([handle("cuDevicePrimaryCtxRetain", d) == first for d in (1, 0)])
print(cu.cuCtxSetCurrent(c_void_p(first)), current() == first, number("cuCtxGetDevice"))
print(cu.cuDevicePrimaryCtxRelease_v2(1), active(1), cu.cuDevicePrimaryCtxRelease(1), active(1))
print(cu.cuDevicePrimaryCtxRelease_v2(1), current() == first, number("cuCtxGetDevice"))
print(handle("cuDevicePrimaryCtxRetain", 2), active(-1))
print(handle("cuDevicePrimaryCtxRetain", 1) == first, cu.cuCtxSynchronize())
print(cu.cuDevicePrimaryCtxReset_v2(1), active(1), cu.cuDevicePrimaryCtxRelease_v2(1))
"""
    assert run(code) == [
        "0 1 None",
        "[True, False]",
        "0 True 1",
        "0 1 0 0",
        "201 True error 709",
        "error 101 error 101",
        "True 0",
        "0 0 0",
    ]


def test_flags_of_an_active_primary_context(run):
    code = """
cu.cuInit(0)
print(cu.cuDevicePrimaryCtxSetFlags(0, 4))
handle("cuDevicePrimaryCtxRetain", 0)
print(cu.cuDevicePrimaryCtxSetFlags(0, 1), cu.cuDevicePrimaryCtxSetFlags_v2(0, 1))
"""
    assert run(code) == ["0", "708 0"]


def test_own_context_is_not_the_primary_one_and_is_pushed(run):
    code = """
cu.cuInit(0)
own = handle("cuCtxCreate_v2", 0, 1)
print(current() == own, number("cuCtxGetDevice"), active(1))
primary = handle("cuDevicePrimaryCtxRetain", 1)
print(primary == own, current() == own)
print(cu.cuCtxPushCurrent_v2(c_void_p(primary)), current() == primary)
print(handle("cuCtxPopCurrent_v2") == primary, current() == own)
print(cu.cuCtxDestroy_v2(c_void_p(primary)), cu.cuCtxDestroy_v2(c_void_p(own)), current())
print(cu.cuCtxPushCurrent_v2(c_void_p(own)), cu.cuCtxPushCurrent_v2(c_void_p(64)))
print(handle("cuCtxPopCurrent_v2"), cu.cuCtxSynchronize(), active(1))
last = handle("cuCtxCreate_v4", None, 0, 0)
print([cu.cuCtxDetach(c_void_p(each)) for each in (own, last, last)], current())
"""
    assert run(code) == [
        "True 1 0",
        "False True",
        "0 True",
        "True True",
        "201 0 None",
        "709 201",
        "error 201 201 1",
        "[201, 0, 201] None",
    ]


def test_setting_the_current_context_replaces_the_top_of_the_stack(run):
    code = """
cu.cuInit(0)
a, b, c = (handle("cuCtxCreate_v2", 0, 0) for _ in "abc")
print(cu.cuCtxSetCurrent(c_void_p(a)), handle("cuCtxPopCurrent_v2") == a, current() == b)
print(cu.cuCtxSetCurrent(None), current() == a)
print(cu.cuCtxSetCurrent(None), current(), cu.cuCtxSetCurrent(None))
"""
    assert run(code) == ["0 True True", "0 True", "0 None 0"]


def test_threads_have_contexts_of_their_own(run):
    code = """
cu.cuInit(0)
mine = handle("cuCtxCreate_v2", 0, 0)
def other():
    print(current())
    theirs = handle("cuCtxCreate_v2", 0, 1)
    print(current() == theirs, number("cuCtxGetDevice"))
    print(cu.cuCtxDestroy_v2(c_void_p(mine)))
in_thread(other)
print(current() == mine, number("cuCtxGetDevice"))
"""
    assert run(code) == ["None", "True 1", "0", "True error 709"]


def test_forced_failures(run):
    code = """
print(cu.cuInit(0))
os.environ["STUB_CUDA_RC"] = "cuDevicePrimaryCtxRetain=46,cuCtxCreate=2"
print(cu.cuInit(0), handle("cuDevicePrimaryCtxRetain", 0), handle("cuCtxCreate_v2", 0, 0))
print(active(0), current())
for rc in (3, 34, 46, 100, 803, 804, 999, 12345):
    said, name = c_void_p(1), ctypes.c_char_p()
    print(cu.cuGetErrorString(rc, byref(said)), cu.cuGetErrorName(rc, byref(name)), end=" ")
    print(name.value and name.value.decode(), bool(said))
"""
    lines = run(code, rc={"cuInit": 804})
    assert lines[:3] == ["804", "0 error 46 error 2", "0 None"]
    assert lines[3:] == [
        "0 0 CUDA_ERROR_NOT_INITIALIZED True",
        "0 0 CUDA_ERROR_STUB_LIBRARY True",
        "0 0 CUDA_ERROR_DEVICE_UNAVAILABLE True",
        "0 0 CUDA_ERROR_NO_DEVICE True",
        "0 0 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH True",
        "0 0 CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE True",
        "0 0 CUDA_ERROR_UNKNOWN True",
        "1 1 None False",
    ]


def test_compute_mode_capability_and_memory(run):
    code = """
cu.cuInit(0)
print([[number("cuDeviceGetAttribute", a, d) for a in (20, 75, 76, 10)] for d in (0, 1)])
print(number("cuDeviceComputeCapability", byref(minor := ctypes.c_int()), 1), minor.value)
print(handle("cuDevicePrimaryCtxRetain", 0), handle("cuCtxCreate_v2", 0, 0))
available, total = ctypes.c_size_t(), ctypes.c_size_t()
print(cu.cuMemGetInfo_v2(byref(available), byref(total)))
contexts = [handle("cuCtxCreate_v2", 0, 1) for _ in range(3)]
print(cu.cuMemGetInfo_v2(byref(available), byref(total)), total.value >> 20, available.value >> 20)
print(contexts[2], number("cuDeviceTotalMem_v2", 1) == total.value % 2**31)
"""
    controls = {"compute_mode": [0, 2], "capability": "10.3", "context_mib": 3000}
    assert run(code, **controls) == [
        "[[2, 10, 3, 32], [0, 10, 3, 32]]",
        "10 3",
        "error 46 error 46",
        "201",
        "0 8192 2192",
        "error 2 True",
    ]


def test_entry_points(run):
    code = """
def find(name, version, function="cuGetProcAddress_v2"):
    found, status = c_void_p(), ctypes.c_int(-1)
    rc = getattr(cu, function)(name, byref(found), version, ctypes.c_ulonglong(0), byref(status))
    names = ("cuInit", "cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuCtxCreate_v2", "cuCtxCreate_v4",
             "cuCtxGetDevice", "cuGetProcAddress", "cuGetProcAddress_v2")
    known = {ctypes.cast(getattr(cu, n), c_void_p).value: n for n in names}
    print(rc, known.get(found.value), status.value)
find(b"cuInit", 12000)
find(b"cuDeviceGetUuid", 11030)
find(b"cuDeviceGetUuid", 12000)
find(b"cuCtxCreate", 11030)
find(b"cuCtxCreate", 13000)
find(b"cuCtxGetDevice", 12000)
find(b"cuGetProcAddress", 11080)
find(b"cuGetProcAddress", 12000)
find(b"cuInit", 13010)
find(b"cuNoSuchThing", 12000)
find(b"cuNoSuchThing", 11080, "cuGetProcAddress")
"""
    assert run(code) == [
        "0 cuInit 0",
        "0 cuDeviceGetUuid 0",
        "0 cuDeviceGetUuid_v2 0",
        "0 cuCtxCreate_v2 0",
        "0 cuCtxCreate_v4 0",
        "0 cuCtxGetDevice 0",
        "0 cuGetProcAddress 0",
        "0 cuGetProcAddress_v2 0",
        "1 None -1",
        "0 None 1",
        "500 None -1",
    ]


def test_log(run, driver_stubs, log):
    code = """
cu.cuInit(0)
in_thread(lambda: handle("cuCtxCreate_v2", 0, 1))
in_child(lambda: number("cuDeviceGetCount"))
print(os.getpid())
"""
    (pid,) = run(code, log=log)
    made, created, counted = driver_stubs.calls(log)
    assert made == (int(pid), made.tid, 1, "cuInit", "flags=0", 0, "-")
    assert created == (int(pid), created.tid, 2, "cuCtxCreate_v2", "flags=0 device=1", 0, "-")
    assert created.tid != made.tid
    assert counted == (counted.pid, counted.tid, 3, "cuDeviceGetCount", "", 3, "-")
    assert counted.pid != made.pid
    assert driver_stubs.calls(log.with_name("none")) == []


def test_lines_of_threads_and_processes_do_not_mix(run, driver_stubs, log):
    code = """
def work():
    for _ in range(100): number("cuDriverGetVersion")
pid = os.fork()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if pid: os.wait()
"""
    run(code, log=log)
    assert len(driver_stubs.calls(log)) == 600


def test_delay_lets_other_threads_run(run):
    code = """
import time
started = time.monotonic()
threads = [threading.Thread(target=lambda: cu.cuInit(0)) for _ in range(2)]
for thread in threads: thread.start()
print(number("cuDriverGetVersion"), number("cuDeviceGetCount"))
for thread in threads: thread.join()
print(number("cuDeviceGetCount"), time.monotonic() - started >= 0.3)
"""
    assert run(code, delay={"cuInit": 300}) == ["13000 error 3", "2 True"]


def test_wide_variant_has_all_that_a_program_names_and_the_same_state(
    run, driver_stubs, tmp_path, log
):
    header = tmp_path / "some.h"
    header.write_text(
        "int cuInit(unsigned);\n#define cuModuleLoad cuModuleLoad_v2\nint cudaFree();"
    )
    wide = driver_stubs.wide(header)
    assert driver_stubs.wide(header) is wide
    code = """
def find(found):
    return cu.cuGetProcAddress_v2(b"cuModuleLoad", found, 12000, ctypes.c_ulonglong(0), None)
cu.find = find
load = (cu.cuModuleLoad, cu.cuModuleLoad_v2)
print(load[1](None, 1), cu.cuInit(0), load[0](None, 1), load[1](None, 1))
print(handle("find") == ctypes.cast(cu.cuModuleLoad_v2, c_void_p).value)
print(hasattr(cu, "cudaFree"), number("cuDeviceGetCount"), current())
in_child(lambda: print(cu.cuModuleLoad_v2(None, 1)))
"""
    assert run(code, stubs=wide, log=log) == ["3 0 801 801", "True", "False 2 None", "3"]
    assert ("cuModuleLoad", 801) in [(call.name, call.rc) for call in wide.calls(log)]


def test_unknown_control_is_refused(driver_stubs):
    with pytest.raises(TypeError, match="no control 'device'"):
        driver_stubs.environment(device=3)


# ---- Memory and streams, of the wide variant ---------------------------------------------------

WORK = """
def attribute(address, which, kind=c_void_p):
    out = kind()
    rc = cu.cuPointerGetAttribute(byref(out), which, address)
    return f"error {rc}" if rc else out.value

def fresh(size=64, function="cuMemAlloc_v2", *arguments):
    return c_void_p(handle(function, ctypes.c_size_t(size), *arguments))

def ask(function, stream, kind=c_void_p, *more):
    out = kind()
    rc = getattr(cu, function)(stream, byref(out), *more)
    return f"error {rc}" if rc else out.value

def rest_of(address):
    # From where the allocation at an address goes, and how far.
    base, size = c_void_p(), ctypes.c_size_t()
    rc = cu.cuMemGetAddressRange_v2(byref(base), byref(size), address)
    return f"error {rc}" if rc else (base.value - address.value, size.value)

def beside(address, distance):
    return c_void_p(address.value + distance)

def read(address, size):
    out = ctypes.create_string_buffer(size)
    rc = cu.cuMemcpyDtoH_v2(out, address, ctypes.c_size_t(size))
    return f"error {rc}" if rc else out.raw

n = ctypes.c_size_t
cu.cuInit(0)
own = c_void_p(handle("cuCtxCreate_v2", 0, 1))
"""


@pytest.fixture
def work(run, driver_stubs):
    """Runs code in a process that has a context of its own on device 1."""
    return lambda code, **how: run(WORK + code, stubs=driver_stubs.wide(), **how)


def test_memory_keeps_bytes(work):
    code = """
a, b = fresh(), fresh()
print(read(a, 2) == read(b, 2) != bytes(2))
print(cu.cuMemcpyHtoD_v2(a, b"abcdefgh", n(8)), read(a, 8))
print(cu.cuMemcpyDtoD_v2(b, beside(a, 1), n(4)), read(b, 4))
print(cu.cuMemcpyDtoHAsync_v2(out := ctypes.create_string_buffer(3), a, n(3), None), out.raw)
print(cu.cuMemcpyHtoDAsync_v2(beside(a, 1), b"X", n(1), c_void_p(1)))
print(cu.cuMemcpy(a, beside(a, 1), n(2)), read(a, 4))
print(cu.cuMemsetD8_v2(a, 0x41, n(3)), cu.cuMemsetD16Async(beside(a, 4), 0x4243, n(1), None))
print(cu.cuMemsetD32_v2(beside(a, 8), 0x44454647, n(2)), read(a, 16))
print(cu.cuMemsetD2D8_v2(a, n(4), 0x2e, n(1), n(3)), read(a, 12))
"""
    assert work(code) == [
        "True",
        "0 b'abcdefgh'",
        "0 b'bcde'",
        "0 b'abc'",
        "0",
        "0 b'Xccd'",
        "0 0",
        "0 b'AAAdCBghGFEDGFED'",
        "0 b'.AAd.Bgh.FED'",
    ]


def test_rows_and_boxes_are_copied(work):
    code = """
def parameters(side, more):
    fields = [(f"{s}_{f}", t) for s in ("src", "dst") for f, t in side] + [(f, n) for f in more]
    return type("Parameters", (ctypes.Structure,), {"_fields_": fields})
at = [("type", ctypes.c_int), ("host", c_void_p), ("device", c_void_p), ("array", c_void_p)]
Flat = parameters([("x", n), ("y", n), *at, ("pitch", n)], ("width", "height"))
Box = parameters([*((f, n) for f in ("x", "y", "z", "lod")), *at, ("reserved", c_void_p),
                  ("pitch", n), ("height", n)], ("width", "height", "depth"))
a, b = fresh(24), fresh(24)
cu.cuMemcpyHtoD_v2(a, bytes(range(65, 89)), n(24))
cu.cuMemsetD8_v2(b, 0x2e, n(24))
flat = Flat(src_type=2, src_device=a, src_pitch=4, src_x=1, src_y=1, dst_type=2, dst_device=b,
            dst_pitch=3, width=2, height=2)
print(cu.cuMemcpy2D_v2(byref(flat)), read(b, 8))
out = ctypes.create_string_buffer(8)
box = Box(src_type=2, src_device=a, src_pitch=4, src_height=3, src_z=1, dst_type=1, width=2,
          height=2, depth=1, dst_host=ctypes.addressof(out))
print(cu.cuMemcpy3D_v2(byref(box)), out.raw)
box.src_z, box.depth, box.src_height = 0, 2, 3
print(cu.cuMemcpy3DAsync_v2(byref(box), None), out.raw)
box.depth = 3
print(cu.cuMemcpy3D_v2(byref(box)))
flat.src_pitch = 2
print(cu.cuMemcpy2DUnaligned_v2(byref(flat)), cu.cuMemcpy2D_v2(None))
flat.src_type = 3
print(cu.cuMemcpy2DAsync_v2(byref(flat), None))
"""
    assert work(code) == [
        "0 b'FG.JK...'",
        "0 b'MNQR\\x00\\x00\\x00\\x00'",
        "0 b'ABEFMNQR'",
        "1",
        "1 1",
        "801",
    ]


def test_copies_stay_within_what_is_allocated(work):
    code = """
a, out = fresh(16), ctypes.create_string_buffer(64)
print(cu.cuMemcpyDtoH_v2(out, a, n(17)), cu.cuMemcpyHtoD_v2(beside(a, 8), out, n(9)))
print(cu.cuMemcpyDtoD_v2(a, out, n(1)), cu.cuMemcpyHtoD_v2(None, out, n(1)))
print(cu.cuMemsetD32_v2(a, 0, n(5)), cu.cuMemsetD32_v2(beside(a, 1), 0, n(1)))
print(handle("cuMemAlloc_v2", n(0)), cu.cuMemFree_v2(beside(a, 1)))
print(cu.cuMemFree_v2(a), cu.cuMemFree_v2(a), read(a, 1))
cu.cuCtxPopCurrent_v2(None)
print(handle("cuMemAlloc_v2", n(1)), cu.cuMemcpy(out, out, n(1)), handle("cuStreamCreate", 0))
in_child(lambda: print(handle("cuMemAlloc_v2", n(1)), cu.cuStreamSynchronize(None)))
"""
    assert work(code) == [
        "1 1",
        "1 1",
        "1 1",
        "error 1 1",
        "0 1 error 1",
        "error 201 201 error 201",
        "error 3 3",
    ]


def test_what_an_address_is(work):
    code = """
a, b = fresh(40), fresh(8, "cuMemAllocManaged", 1)
host = fresh(8, "cuMemHostAlloc", 2)
print(rest_of(beside(a, 39)), rest_of(beside(a, 40)), rest_of(host))
for each in (beside(a, 8), b, host):
    print(attribute(each, 1) == own.value, [attribute(each, w, ctypes.c_int) for w in (2, 8, 9)],
          attribute(each, 3) == each.value, attribute(each, 4) in (each.value, "error 1"))
print(attribute(a, 4), attribute(beside(a, 8), 11) == a.value, attribute(a, 12, n))
print(len({attribute(each, 7) for each in (a, b, host, beside(a, 1))}), attribute(a, 13))
text = ctypes.create_string_buffer(8)
own_memory = c_void_p(ctypes.addressof(text))
print(attribute(own_memory, 2), attribute(None, 2), rest_of(c_void_p(64)))
def several(address):
    kind, device, pointer = ctypes.c_uint(7), ctypes.c_int(7), c_void_p(7)
    places = [ctypes.addressof(each) for each in (kind, device, pointer)]
    rc = cu.cuPointerGetAttributes(3, (ctypes.c_int * 3)(2, 9, 4), (c_void_p * 3)(*places), address)
    return rc, kind.value, device.value, pointer.value
print(several(a), several(c_void_p(64)))
print(cu.cuMemHostRegister_v2(text, n(8), 0), attribute(own_memory, 2),
      cu.cuMemHostRegister_v2(text, n(8), 0), number("cuMemHostGetFlags", host))
print(handle("cuMemHostGetDevicePointer_v2", host, 0) == host.value, cu.cuMemFreeHost(text))
print([cu.cuMemHostUnregister(text) for _ in "ab"], cu.cuMemFree_v2(host), cu.cuMemFreeHost(host))
"""
    assert work(code) == [
        "(-39, 40) error 1 error 1",
        "True [2, 0, 1] True True",
        "True [2, 1, 1] True True",
        "True [1, 0, 1] True True",
        "error 1 True 40",
        "3 error 801",
        "error 1 error 1 error 1",
        "(0, 2, 1, None) (0, 0, -2, None)",
        "0 1 712 2",
        "True 1",
        "[0, 713] 1 0",
    ]


def test_streams_and_events_are_handles(work):
    code = """
s = c_void_p(handle("cuStreamCreateWithPriority", 1, -9))
t = c_void_p(handle("cuStreamCreate", 0))
print([ask(f"cuStream{what}", s, ctypes.c_int)
       for what in ("GetFlags", "GetPriority", "GetDevice", "IsCapturing")])
ids = [ask("cuStreamGetId", c_void_p(each)) for each in (0, 1, 2, s.value, t.value)]
print(ids[0] == ids[1], len(set(ids)))
print(all(ask("cuStreamGetCtx", each) == own.value for each in (s, None, c_void_p(2))))
green = c_void_p(7)
print(ask("cuStreamGetCtx_v2", s, c_void_p, byref(green)) == own.value, green.value)
print([cu.cuStreamSynchronize(each) for each in (s, None, c_void_p(1), c_void_p(2))])
e, f, untimed = (c_void_p(handle("cuEventCreate", flags)) for flags in (0, 0, 2))
print(handle("cuEventCreate", 4), handle("cuStreamCreate", 2))
span = ctypes.c_float(-1)
print(cu.cuEventQuery(e), cu.cuEventElapsedTime(byref(span), e, f))
print([cu.cuEventRecord(each, s) for each in (e, f, untimed)], cu.cuEventSynchronize(f))
print(cu.cuEventElapsedTime_v2(byref(span), e, f), 0 <= span.value < 1e4,
      cu.cuEventElapsedTime_v2(byref(span), e, untimed))
print(cu.cuStreamWaitEvent(t, e, 0))
print([cu.cuStreamDestroy_v2(each) for each in (s, None)], cu.cuEventDestroy_v2(e))
"""
    assert work(code) == [
        "[1, -5, 1, 0]",
        "True 4",
        "True",
        "True None",
        "[0, 0, 0, 0]",
        "error 1 error 1",
        "0 400",
        "[0, 0, 0] 0",
        "0 True 400",
        "0",
        "[0, 400] 0",
    ]


@pytest.mark.parametrize(
    "use",
    [
        "cu.cuStreamDestroy_v2(s); cu.cuStreamSynchronize(s)",
        "cu.cuStreamDestroy_v2(s); ask('cuStreamGetCtx', s)",
        "cu.cuStreamQuery(e)",
        "cu.cuStreamSynchronize(c_void_p(64))",
        "cu.cuStreamWaitEvent(None, s, 0)",
        "cu.cuEventDestroy_v2(e); cu.cuEventQuery(e)",
        "cu.cuCtxDestroy_v2(own); cu.cuCtxSetCurrent(primary); cu.cuStreamQuery(s)",
    ],
)
def test_handles_of_what_is_gone_are_undefined_behavior(run, child, driver_stubs, use):
    code = f"""
s, e = c_void_p(handle("cuStreamCreate", 0)), c_void_p(handle("cuEventCreate", 0))
primary = c_void_p(handle("cuDevicePrimaryCtxRetain", 0))
print("until here")
{use}
"""
    child.write("driver.py", DRIVER)
    path = child.write("main.py", "from driver import *\n" + WORK + code)
    environment = driver_stubs.wide().environment()
    done = child.command(sys.executable, path, env=environment, check=False)
    assert (done.returncode, done.stdout) == (-6, "until here\n")
    assert "undefined behavior" in done.stderr


def test_memory_of_a_pool_belongs_to_a_device_and_to_no_context(work):
    code = """
a = fresh(8, "cuMemAllocAsync", None)
print(attribute(a, 1), attribute(a, 9, ctypes.c_int), attribute(a, 2, ctypes.c_int))
s = c_void_p(handle("cuStreamCreate", 0))
handle("cuCtxCreate_v2", 0, 0)
b = fresh(8, "cuMemAllocAsync", s)
print(attribute(b, 9, ctypes.c_int))
cu.cuCtxDestroy_v2(own)
print(attribute(a, 9, ctypes.c_int), cu.cuMemFree_v2(a))
"""
    assert work(code) == ["None 1 2", "1", "1 0"]


CAPTURE = """
def begin(stream, mode=0): return cu.cuStreamBeginCapture_v2(stream, mode)
def finish(stream):
    graph = c_void_p()
    return cu.cuStreamEndCapture(stream, byref(graph)), bool(graph.value)
def exchange(mode):
    was = ctypes.c_int(mode)
    assert cu.cuThreadExchangeStreamCaptureMode(byref(was)) == 0
    return was.value
def capturing(stream): return ask("cuStreamIsCapturing", stream, ctypes.c_int)
s, t = (c_void_p(handle("cuStreamCreate", 1)) for _ in "st")
e = c_void_p(handle("cuEventCreate", 2))
"""


def test_capture_takes_in_what_waits_for_it_and_nothing_from_outside(work):
    code = """
print(begin(s), capturing(s), capturing(t))
print(cu.cuEventRecord(e, s), cu.cuStreamWaitEvent(t, e, 0), capturing(t), finish(t))
print(cu.cuEventQuery(e), capturing(s), finish(s), capturing(t))
print(begin(s), cu.cuEventRecord(e, t), cu.cuStreamWaitEvent(s, e, 0), finish(s))
print(begin(s), cu.cuStreamSynchronize(s), finish(s), begin(None), begin(c_void_p(1)))
"""
    assert work(CAPTURE + code) == [
        "0 1 0",
        "0 0 1 (903, False)",
        "907 2 (901, False) 0",
        "0 0 905 (901, False)",
        "0 900 (901, False) 900 900",
    ]


def test_legacy_stream_is_unusable_while_a_blocking_stream_is_captured(work):
    code = """
blocking = c_void_p(handle("cuStreamCreate", 0))
print(begin(s), [capturing(c_void_p(h)) for h in (0, 1, 2)], finish(s))
print(begin(blocking), [capturing(c_void_p(h)) for h in (0, 1, 2)], finish(blocking))
print(begin(blocking), cu.cuEventRecord(e, None), finish(blocking))
"""
    assert work(CAPTURE + code) == [
        "0 [0, 0, 0] (0, True)",
        "0 ['error 906', 'error 906', 0] (0, True)",
        "0 906 (901, False)",
    ]


def test_other_threads_may_disturb_a_global_capture_unless_they_are_relaxed(work):
    code = """
def other():
    cu.cuCtxSetCurrent(own)
    print(exchange(mode), cu.cuStreamSynchronize(t), handle("cuEventCreate", 2) != 0, exchange(0))
for capture in (0, 1, 2):
    for mode in (0, 1, 2):
        begin(s, capture)
        in_thread(other)
        print(finish(s))
begin(s, 0)
print(cu.cuStreamSynchronize(t), finish(s))
begin(s, 0)
print(exchange(2), cu.cuStreamSynchronize(t), finish(s), exchange(0))
begin(s, 2)
print(cu.cuCtxSynchronize(), finish(s))
"""
    fine, broken = ["(0, True)"], ["(901, False)"]
    loose = [[f"0 0 True {mode}", *fine] for mode in (0, 1, 2)]
    expected = [["0 900 True 0", *broken], loose[1], loose[2], *loose, *loose]
    assert work(CAPTURE + code) == [
        *(line for lines in expected for line in lines),
        "900 (901, False)",
        "0 0 (0, True) 2",
        "900 (901, False)",
    ]


def test_stream_of_a_green_context(work):
    code = """
primary = c_void_p(handle("cuDevicePrimaryCtxRetain", 0))
green = c_void_p(handle("cuGreenCtxCreate", None, 0, 1))
converted = handle("cuCtxFromGreenCtx", green)
s = c_void_p(handle("cuGreenCtxStreamCreate", green, 1, 0))
beside = c_void_p()
print(ask("cuStreamGetCtx", s) == converted,
      ask("cuStreamGetCtx_v2", s, c_void_p, byref(beside)) == primary.value,
      beside.value == green.value, cu.cuCtxPushCurrent_v2(green))
cu.cuCtxPushCurrent_v2(c_void_p(converted))
print(current() == converted, number("cuCtxGetDevice"))
"""
    assert work(code) == ["True True True 201", "True 0"]


def test_events_and_streams_of_two_contexts(work):
    code = """
s, e = c_void_p(handle("cuStreamCreate", 0)), c_void_p(handle("cuEventCreate", 0))
other = c_void_p(handle("cuCtxCreate_v2", 0, 1))
f = c_void_p(handle("cuEventCreate", 0))
print(cu.cuEventRecord(f, s), cu.cuEventRecord(e, None), cu.cuEventRecord(e, s))
print(cu.cuStreamWaitEvent(s, f, 0), cu.cuStreamWaitEvent(None, e, 0), cu.cuStreamSynchronize(s))
"""
    assert work(code) == ["400 400 0", "0 0 0"]


def test_all_goes_with_its_context(work):
    code = """
primary = c_void_p(handle("cuDevicePrimaryCtxRetain", 0))
cu.cuCtxPushCurrent_v2(primary)
for end in (cu.cuDevicePrimaryCtxReset_v2, cu.cuDevicePrimaryCtxRelease_v2):
    a = fresh()
    print(attribute(a, 2, ctypes.c_int))
    while active(0): end(0)
    print(handle("cuDevicePrimaryCtxRetain", 0) == primary.value, attribute(a, 2),
          cu.cuMemFree_v2(a))
"""
    assert work(code) == ["2", "True error 1 1"] * 2


def test_entry_points_of_streams(work):
    code = """
def find(name, version):
    found = c_void_p()
    cu.cuGetProcAddress_v2(name, byref(found), version, ctypes.c_ulonglong(0), None)
    names = ("cuStreamGetCtx", "cuStreamGetCtx_v2", "cuEventElapsedTime", "cuEventElapsedTime_v2",
             "cuMemAlloc_v2", "cuStreamDestroy_v2", "cuMemsetD8_v2", "cuMemsetD8Async")
    known = {ctypes.cast(getattr(cu, n), c_void_p).value: n for n in names}
    print(known.get(found.value))
for version in (9020, 12050): find(b"cuStreamGetCtx", version)
for version in (2000, 12080): find(b"cuEventElapsedTime", version)
for name in (b"cuMemAlloc", b"cuStreamDestroy", b"cuMemsetD8", b"cuMemsetD8Async"): find(name, 4000)
"""
    assert work(code) == [
        "cuStreamGetCtx",
        "cuStreamGetCtx_v2",
        "cuEventElapsedTime",
        "cuEventElapsedTime_v2",
        "cuMemAlloc_v2",
        "cuStreamDestroy_v2",
        "cuMemsetD8_v2",
        "cuMemsetD8Async",
    ]


def test_log_tells_streams_events_and_addresses(work, driver_stubs, log):
    code = """
s, e, a = (c_void_p(handle(*how)) for how in
           (("cuStreamCreate", 1), ("cuEventCreate", 2), ("cuMemAlloc_v2", n(8))))
cu.cuEventRecord(e, None)
cu.cuStreamWaitEvent(s, e, 0)
cu.cuStreamSynchronize(c_void_p(1))
cu.cuMemsetD8Async(a, 0, n(8), s)
cu.cuMemFreeAsync(a, s)
print(hex(s.value), hex(e.value), hex(a.value))
"""
    stream, event, address = work(code, log=log)[0].split()
    calls = [(call.name, call.args, call.rc) for call in driver_stubs.calls(log)[2:]]
    assert calls == [
        ("cuStreamCreate", f"flags=1 priority=0 stream={stream}", 0),
        ("cuEventCreate", f"flags=2 event={event}", 0),
        ("cuMemAlloc_v2", f"bytes=8 address={address}", 0),
        ("cuEventRecord", f"event={event} stream=0 flags=0", 0),
        ("cuStreamWaitEvent", f"stream={stream} event={event} flags=0", 0),
        ("cuStreamSynchronize", "stream=0x1", 0),
        ("cuMemsetD8Async", f"address={address} value=0 width=8 height=1 stream={stream}", 0),
        ("cuMemFreeAsync", f"address={address} stream={stream}", 0),
    ]


# ---- NVML, asked by the real pynvml --------------------------------------------------------------

NVML = """
import pynvml as nv
nv.nvmlInit()
devices = [nv.nvmlDeviceGetHandleByIndex(i) for i in range(nv.nvmlDeviceGetCount())]
"""


def test_both_libraries_agree_by_uuid_and_bus_id_and_not_by_number(run, driver_stubs):
    code = f"""{NVML}
cu.cuInit(0)
for d in range(number("cuDeviceGetCount")):
    digits = uuid(d)
    full = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    by_uuid = nv.nvmlDeviceGetHandleByUUID(full.encode())
    by_bus = nv.nvmlDeviceGetHandleByPciBusId(text("cuDeviceGetPCIBusId", d).encode())
    assert nv.nvmlDeviceGetUUID(by_bus) == full == nv.nvmlDeviceGetUUID(by_uuid)
    assert nv.nvmlDeviceGetName(by_bus) == text("cuDeviceGetName", d)
    pci = nv.nvmlDeviceGetPciInfo(by_uuid)
    assert pci.busIdLegacy == text("cuDeviceGetPCIBusId", d)
    assert pci.busId.endswith(pci.busIdLegacy) and pci.busId != pci.busIdLegacy
    assert pci.bus == number("cuDeviceGetAttribute", 33, d)
    capability = [number("cuDeviceGetAttribute", a, d) for a in (75, 76)]
    assert list(nv.nvmlDeviceGetCudaComputeCapability(by_uuid)) == capability
    print(d, nv.nvmlDeviceGetIndex(by_uuid), nv.nvmlDeviceGetMinorNumber(by_uuid), full)
    print(text("cuDeviceGetPCIBusId", d), text("cuDeviceGetName", d))
"""
    lines = run(code, devices=4)
    assert [line.split()[:3] for line in lines[::2]] == [
        ["0", "3", "4"],
        ["1", "2", "5"],
        ["2", "1", "6"],
        ["3", "0", "7"],
    ]
    seen = [(*line.split()[3:], *rest.split(" ", 1)) for line, rest in zip(*[iter(lines)] * 2)]
    assert seen == [(d.uuid, d.bus_id, d.name) for d in driver_stubs.devices[3::-1]]


def test_nvml_sees_all_devices_in_pci_order(run):
    code = f"""{NVML}
print([nv.nvmlDeviceGetName(d)[-1] for d in devices])
cu.cuInit(0)
print(number("cuDeviceGetCount"), text("cuDeviceGetName", 0))
"""
    assert run(code, devices=3, visible="0") == ["['A', 'B', 'C']", "1 Stub GPU C"]


def test_nvml_initializes_no_cuda(run, driver_stubs, log):
    run(f'{NVML}\nassert number("cuDeviceGetCount") == "error 3"', log=log)
    names = [call.name for call in driver_stubs.calls(log)]
    assert [name for name in names if not name.startswith("nvml")] == ["cuDeviceGetCount"]
    assert names[:2] == ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"]


def test_memory_processes_modes_and_versions(run):
    code = f"""{NVML}
a, b = devices
memory, second = nv.nvmlDeviceGetMemoryInfo(b), nv.nvmlDeviceGetMemoryInfo(b, nv.nvmlMemory_v2)
print([n >> 20 for n in (memory.total, memory.used, memory.free)])
print([n >> 20 for n in (second.total, second.reserved, second.used, second.free)])
show = lambda device, version="": [
    (p.pid == os.getpid() or p.pid, p.usedGpuMemory and p.usedGpuMemory >> 20)
    for p in getattr(nv, "nvmlDeviceGetComputeRunningProcesses" + version)(device)
]
print(show(a), show(b), show(b, "_v2"))
print([(nv.nvmlDeviceGetComputeMode(d), nv.nvmlDeviceGetMigMode(d)) for d in devices])
print(nv.nvmlSystemGetDriverVersion(), nv.nvmlSystemGetNVMLVersion())
print(nv.nvmlSystemGetCudaDriverVersion())
"""
    controls = {
        "processes": "1:7:300,1:self:40,1:8:-",
        "used_mib": [0, 1000],
        "compute_mode": [0, 3],
        "mig": {"MIG-x": 1},
        "kernel_driver": "535.1",
        "driver_version": 12020,
    }
    assert run(code, **controls) == [
        "[16384, 1256, 15128]",
        "[16384, 256, 1000, 15128]",
        "[] [(7, 300), (True, 40), (8, None)] [(7, 300), (True, 40), (8, None)]",
        "[(0, [0, 0]), (3, [1, 1])]",
        "535.1 12.535.1",
        "12020",
    ]


def test_errors_of_nvml(run):
    code = """
import pynvml as nv
def attempt(function, *arguments):
    try:
        function(*arguments)
    except nv.NVMLError as error:
        print(type(error).__name__, error.value)
attempt(nv.nvmlDeviceGetCount)
attempt(nv.nvmlInit)
os.environ["STUB_CUDA_RC"] = "nvmlInit=18"
attempt(nv.nvmlInit)
os.environ["STUB_CUDA_RC"] = "nvmlDeviceGetMemoryInfo=3"
nv.nvmlInit()
device = nv.nvmlDeviceGetHandleByIndex(0)
attempt(nv.nvmlDeviceGetHandleByIndex, 2)
attempt(nv.nvmlDeviceGetHandleByUUID, b"GPU-c0")
attempt(nv.nvmlDeviceGetMemoryInfo, device)
attempt(nv.nvmlDeviceGetTemperature, device, 0)
nv.nvmlInit()
nv.nvmlShutdown()
print(nv.nvmlDeviceGetCount())
nv.nvmlShutdown()
attempt(nv.nvmlDeviceGetName, device)
"""
    assert run(code, rc={"nvmlInit": 9}) == [
        "NVMLError_Uninitialized 1",
        "NVMLError_DriverNotLoaded 9",
        "NVMLError_LibRmVersionMismatch 18",
        "NVMLError_InvalidArgument 2",
        "NVMLError_NotFound 6",
        "NVMLError_NotSupported 3",
        "NVMLError_FunctionNotFound 13",
        "2",
        "NVMLError_Uninitialized 1",
    ]
