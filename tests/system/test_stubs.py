"""The stub drivers keep the driver's contract, as far as tests of the guard rely on it."""

from __future__ import annotations

import subprocess

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
