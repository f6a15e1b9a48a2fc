"""The passive probe: what it sees of the driver, and that it does not touch it."""

from __future__ import annotations

import pytest

from .program import on_both_drivers

# The only calls that looking may make; the last two only where a context is current.
LOOKING = {"cuDeviceGetCount", "cuDevicePrimaryCtxGetState", "cuCtxGetDevice"}
STATE = """
import ctypes
from cudaguard.system.driver import Driver

driver_seen = Driver()

def show():
    s = driver_seen.state()
    words = ["mapped"] * s.is_mapped + ["initialized"] * s.is_initialized
    print(*words, s.devices, s.active, s.current)
"""
ABSENT, LOADED = "0 () -1", "mapped 0 () -1"


@pytest.fixture
def others(compiler):
    """Libraries of no interest, which can be unloaded."""
    return [str(compiler.library(f"libother{i}.so", "int a_number = 3;\n")) for i in range(3)]


@on_both_drivers
def test_states_of_one_device_in_their_order(program):
    lines = program.output(
        STATE
        + """
show()
cu = driver()
show()
print(asked(cu), cu.cuInit(0), asked(cu))
show()
primary, own = ctypes.c_void_p(), ctypes.c_void_p()
print(cu.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0))
show()
print(cu.cuCtxSetCurrent(primary), driver_seen.has_other_context())
show()
print(own_context(0), driver_seen.has_other_context())
show()
print(cu.cuCtxPopCurrent_v2(ctypes.byref(own)), driver_seen.has_other_context())
print(own.value != primary.value, cu.cuCtxDestroy_v2(own))
print(cu.cuCtxSetCurrent(None), driver_seen.has_other_context())
show()
in_child(show)
in_child(lambda: print(asked(cu), cu.cuInit(0)))
print(cu.cuDevicePrimaryCtxRelease_v2(0))
show()
""",
        devices=1,
    )
    assert lines == [
        *(ABSENT, LOADED), *("3 0 0", "mapped initialized 1 () -1"),
        *("0", "mapped initialized 1 (0,) -1"), *("0 False", "mapped initialized 1 (0,) 0"),
        *("0 True", "mapped initialized 1 (0,) 0"), *("0 False", "True 0"),
        *("0 False", "mapped initialized 1 (0,) -1"), *(LOADED, "3 3"),
        *("0", "mapped initialized 1 () -1"),
    ]  # fmt: skip


@on_both_drivers
def test_driver_is_not_asked_in_a_child_unless_that_is_known_to_be_safe(program):
    code = """
show()
cu = driver()
show()
in_child(lambda: (show(), cu.cuInit(0), show()))
driver_seen.may_be_asked_in_child = True
in_child(lambda: (show(), cu.cuInit(0), show()))
show()
"""
    assert program.output(STATE + code, devices=1) == [
        *(ABSENT, LOADED),
        *(LOADED, LOADED),
        *(LOADED, "mapped initialized 1 () -1"),
        LOADED,
    ]


def test_looking_makes_no_call_that_could_change_anything(program):
    ran = program.run(
        STATE
        + """
for _ in range(3):
    driver_seen.state(), driver_seen.has_other_context()
print(open("calls.log").read() if os.path.exists("calls.log") else "no call")
cu = driver()
for _ in range(3):
    driver_seen.state(), driver_seen.has_other_context()
cu.cuInit(0)
for _ in range(3):
    driver_seen.state(), driver_seen.has_other_context()
""",
    )
    assert ran.out == ["no call"]
    assert ran.calls.count("cuInit") == 1
    assert set(ran.calls) == LOOKING | {"cuInit"}


@on_both_drivers
def test_only_an_active_primary_context_is_retained_to_be_compared_and_is_given_back(program):
    ran = program.run(
        STATE
        + """
cu = driver()
cu.cuInit(0)
own_context(0)
print(driver_seen.has_other_context(), driver_seen.state().active)
cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
print(driver_seen.has_other_context(), driver_seen.state().active)
cu.cuDevicePrimaryCtxRelease_v2(0)
print(driver_seen.state().active)
"""
    )
    # The context goes with the only reference that the program has: the look has left none.
    assert ran.out == ["True ()", "True (0,)", "()"]
    assert program.is_real or ran.calls.count("cuDevicePrimaryCtxRetain") == 2


@on_both_drivers
@pytest.mark.parametrize("first", ["", "import ctypes"])
def test_import_install_and_status_neither_load_nor_initialize(program, first):
    """Law 2: looking never initializes CUDA and never loads a library."""
    program.module("kaolin")
    ran = program.run(
        f"""
        {first}
        mapped = lambda: [name for name in open("/proc/self/maps") if "libcuda" in name
                          or "libnvidia-ml" in name]
        for mode in ("observe", "warn", "fix", "strict"):
            cudaguard.install(mode, context="auto")
            import ctypes, kaolin
            cudaguard.status()
            ctypes.CDLL(None)
            ctypes.CDLL("libm.so.6")
            del sys.modules["kaolin"]
        cudaguard.uninstall()
        print(mapped(), asked())
        """
    )
    assert (ran.out, ran.err) == (["[] 3"], "")
    assert program.is_real or ran.calls == ["cuDeviceGetCount"]  # the program's own question


@on_both_drivers
def test_library_that_was_opened_by_its_path_is_found(program):
    code = """
cu = ctypes.CDLL(sys.argv[1])
show()
cu.cuInit(0)
show()
"""
    env = {"CUDA_VISIBLE_DEVICES": "0"}
    if not program.is_real:  # a driver may need the variable for libraries of its own
        env["LD_LIBRARY_PATH"] = ""
    ran = program.run(STATE + code, program.library, env=env)
    assert ran.out == [LOADED, "mapped initialized 1 () -1"]


@on_both_drivers
def test_function_that_the_driver_lacks_answers_not_found(program):
    code = "driver()\ndriver_seen.state()\nprint(driver_seen.call('cuNoSuchThing'))"
    assert program.output(STATE + code) == ["500"]


# Libraries that are loaded and unloaded: the remembered end of the list is an entry that is freed.
COMING_AND_GOING = """
import _ctypes, ctypes.util
from cudaguard.system.driver import LoaderNews

def come_and_go():
    for path in sys.argv[1:]:
        handle = _ctypes.dlopen(path, os.RTLD_NOW)
        driver_seen.state()     # the end of the list is this library now
        _ctypes.dlclose(handle)
        assert path not in open("/proc/self/maps").read(), "it was not unloaded"
        trash = [bytes(4096) for _ in range(200)]
        driver_seen.state()
"""


def test_libraries_that_come_and_go_in_between(program, others):
    code = """
come_and_go()
show()
cu = driver()
come_and_go()
show()
cu.cuInit(0)
come_and_go()
show()
"""
    assert program.output(STATE + COMING_AND_GOING + code, *others) == [
        ABSENT,
        LOADED,
        "mapped initialized 2 () -1",
    ]


def test_memory_of_the_process_that_cannot_be_read_at_all(program):
    """No /proc: the driver is not found, and nothing breaks."""
    code = """
import cudaguard.system.loader_list as probe
def refuse(self):
    raise OSError("no /proc")
# Code of the guard, by its module: what another raises is not the guard's to contain.
of_the_guard = {**globals(), "__name__": "cudaguard.refusal"}
probe.Memory.__enter__ = type(refuse)(refuse.__code__, of_the_guard)
driver()
show()
print(driver_seen._news.names())
"""
    assert program.output(STATE + code) == [ABSENT, "[]"]


def test_threads_that_look_while_libraries_come_and_go(program, others):
    code = """
import threading
done = []
def look():
    while not done:
        driver_seen.state()
threads = [threading.Thread(target=look) for _ in range(2)]
for thread in threads: thread.start()
for _ in range(40): come_and_go()
driver().cuInit(0)
done.append(1)
for thread in threads: thread.join()
show()
"""
    assert program.output(STATE + COMING_AND_GOING + code, *others) == [
        "mapped initialized 2 () -1"
    ]
