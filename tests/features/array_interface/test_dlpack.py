"""The bridge to DLPack, read by a consumer in ctypes that does what those written in C do."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

import cudaguard

from ...features.cuda_init.program import Program
from .producers import make
from .test_order import START

CONSUMER = '''
import gc
import threading
import weakref

from cudaguard.features.array_interface.repair import dlpack

api = ctypes.pythonapi
api.PyCapsule_GetName.restype = ctypes.c_char_p
api.PyCapsule_GetName.argtypes = [ctypes.py_object]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


class Tensor:
    """Takes a capsule, and gives it back when it is told to."""

    def __init__(self, capsule):
        name = api.PyCapsule_GetName(capsule)
        kind = dlpack._ManagedVersioned if name.endswith(b"versioned") else dlpack._Managed
        self.address = api.PyCapsule_GetPointer(capsule, name)
        assert api.PyCapsule_SetName(capsule, USED[name]) == 0
        self.managed = kind.from_address(self.address)
        tensor = self.managed.tensor
        self.name, self.data = name.decode(), tensor.data
        self.device = tensor.device_type, tensor.device_id
        self.type = tensor.code, tensor.bits, tensor.lanes
        self.shape = tensor.shape[: tensor.ndim]
        self.strides = tensor.strides[: tensor.ndim]
        self.offset = tensor.byte_offset
        if kind is dlpack._ManagedVersioned:
            self.version, self.flags = (self.managed.major, self.managed.minor), self.managed.flags

    def give_back(self):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.managed.deleter)(self.address)


def bridge(array, **more):
    return cudaguard.normalize(array, consumer="dlpack", **more)


def is_alive(reference):
    gc.collect()
    return reference() is not None
'''


@pytest.fixture
def program(child: Any, driver_stubs: Any) -> Program:
    return Program(child, driver_stubs.wide())


@pytest.fixture
def run(program: Program) -> Any:
    """Runs code with an array on the stub driver, and returns what it printed."""

    def run(code: str) -> list[str]:
        ran = program.run(START + CONSUMER + textwrap.dedent(code))
        assert ran.err == ""
        return [line for line in ran.out if not line.startswith("start ")]

    return run


def test_what_a_consumer_reads(run):
    out = run(
        """
        array.interface.update(shape=(2, 3), strides=(32, 4))
        view = bridge(array, stream=None)
        print(view.__dlpack_device__(), type(view).__name__)
        for version in (None, (0, 8), (1, 0), (1, 3)):
            t = Tensor(view.__dlpack__(max_version=version))
            print(t.name, t.data == array.interface["data"][0], t.device, t.type, t.shape,
                  t.strides, t.offset, getattr(t, "version", ""), getattr(t, "flags", ""))
            t.give_back()
        """
    )
    rest = "True (2, 0) (2, 32, 1) [2, 3] [8, 1] 0"
    old, new = f"dltensor {rest}  ", f"dltensor_versioned {rest} (1, 0) 0"
    assert out == ["(2, 0) Bridge", old, old, new, new]


@pytest.mark.parametrize(
    ("typestr", "said"),
    [
        ("<f2", (2, 16, 1)), ("<f8", (2, 64, 1)), ("|i1", (0, 8, 1)), ("<i8", (0, 64, 1)),
        ("|u1", (1, 8, 1)), ("<u4", (1, 32, 1)), ("<c8", (5, 64, 1)), ("|b1", (6, 8, 1)),
        ("=f", (2, 32, 1)),
    ],
)  # fmt: skip
def test_types(run, typestr, said):
    code = f"""
        array.interface["typestr"] = {typestr!r}
        print(Tensor(bridge(array, stream=None).__dlpack__()).type)
        """
    assert run(code) == [str(said)]


@pytest.mark.parametrize(
    ("shape", "strides"), [((), []), ((4,), [1]), ((2, 2), [2, 1]), ((0, 3), [3, 1])]
)
def test_strides_are_always_there(run, shape, strides):
    code = f"""
        array.interface["shape"] = {shape}
        t = Tensor(bridge(array, stream=None).__dlpack__())
        print(t.shape, t.strides, bool(t.data) == (0 not in {shape}))
        """
    assert run(code) == [f"{list(shape)} {strides} True"]


def test_array_lives_as_long_as_a_consumer_or_the_bridge_and_no_longer(run):
    out = run(
        """
        owner = weakref.ref(array)
        view = bridge(array, stream=None)
        del array
        print(is_alive(owner))
        t = Tensor(view.__dlpack__())
        del view
        print(is_alive(owner), len(dlpack._loans), dlpack._collected in gc.callbacks)
        t.give_back()
        print(is_alive(owner), len(dlpack._loans), dlpack._collected in gc.callbacks)
        """
    )
    assert out == ["True", "True 1 True", "False 0 False"]


def test_capsule_that_nobody_takes_is_let_go_and_one_that_is_held_is_not(run):
    out = run(
        """
        view = bridge(array, stream=None)
        view.__dlpack__()
        held = view.__dlpack__()
        gc.collect()
        print(len(dlpack._loans))
        t = Tensor(held)
        del held
        gc.collect()
        print(len(dlpack._loans), t.managed.tensor.data == t.data)
        """
    )
    assert out == ["1", "1 True"]


def test_giving_back_disturbs_no_exception_and_needs_no_interpreter_lock(run):
    """A deleter written in Python would lose the exception that is under way."""
    out = run(
        """
        view = bridge(array, stream=None)
        for capsule in (view.__dlpack__, lambda: view.__dlpack__(max_version=(1, 0))):
            try:
                int(capsule())  # goes while the error is set
            except TypeError as error:
                print(str(error)[:5])
        t = Tensor(view.__dlpack__())
        thread = threading.Thread(target=t.give_back)  # ctypes lets go of the lock for the call
        thread.start()
        thread.join()
        gc.collect()
        print(len(dlpack._loans))
        """
    )
    assert out == ["int()", "int()", "0"]


def test_loan_that_is_open_at_the_end_of_the_process(run):
    code = """
        import atexit
        t = Tensor(bridge(array, stream=None).__dlpack__())
        deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(t.managed.deleter)
        atexit.register(lambda: (deleter(t.address), print("end")))
        """
    assert run(code) == ["end"]


def test_threads_that_lend_at_once(run):
    out = run(
        """
        view, failed = bridge(array, stream=None), []
        def work():
            for _ in range(300):
                t = Tensor(view.__dlpack__())
                gc.collect(0)
                if t.managed.tensor.data != t.data or t.managed.tensor.shape[0] != 4:
                    failed.append(t)
                t.give_back()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        gc.collect()
        print(failed, len(dlpack._loans))
        """
    )
    assert out == ["[] 0"]


@pytest.mark.parametrize(
    ("asked", "waits"),
    [("1", "0x1"), ("None", "0x1"), ("2", "0x2"), ("-1", ""), ("array.interface['stream']", "")],
)
def test_stream_of_the_consumer_waits_for_that_of_the_producer(program, asked, waits):
    ran = program.run(START + CONSUMER + f"bridge(array).__dlpack__(stream={asked})\n")
    calls = [c for c in program.stubs.calls(program.log) if c.name == "cuStreamWaitEvent"]
    assert ran.err == ""
    assert [f"stream={waits} " in call.args for call in calls] == ([True] if waits else [])
    recorded = [c for c in program.stubs.calls(program.log) if c.name == "cuEventRecord"]
    (started,) = (int(line.split()[1]) for line in ran.out)
    assert [f"stream={started:#x} " in call.args for call in recorded] == ([True] if waits else [])


def test_stream_none_of_the_producer_needs_no_waiting(program):
    code = START + CONSUMER + "bridge(array, stream=None).__dlpack__(stream=1)\n"
    assert not {"cuEventRecord", "cuStreamSynchronize"} & set(program.run(code).calls)


@pytest.mark.parametrize(
    ("setting", "call", "said"),
    [
        ("", "__dlpack__(copy=True)", "never copies"),
        ("", "__dlpack__(stream=0)", "ambiguous"),
        ("", "__dlpack__(dl_device=(1, 0))", "not (1, 0)"),
        ("array.interface['data'] = (array.interface['data'][0], True)", "__dlpack__()",
         "read-only"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_so(run, setting, call, said):
    (line,) = run(
        f"""
        {setting}
        view = bridge(array)
        try: view.{call}
        except BufferError as error: print(error)
        """
    )
    assert said in line


def test_read_only_data_are_said_to_be(run):
    out = run(
        """
        array.interface["data"] = (array.interface["data"][0], True)
        print(Tensor(bridge(array, stream=None).__dlpack__(max_version=(1, 0))).flags)
        """
    )
    assert out == ["1"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"typestr": ">f4"}, "typestr"),
        ({"typestr": "|V4"}, "typestr"),
        ({"typestr": "<M8[s]"}, "typestr"),
        ({"strides": (-4,), "shape": (4,)}, "strides"),
        ({"strides": (6,), "shape": (4,)}, "strides"),
        ({"mask": make()}, "mask"),
        ({}, "data"),  # no driver is there that would know whose memory it is
    ],
)
def test_what_dlpack_cannot_say_is_refused(more, field):
    with pytest.raises(cudaguard.ArrayInterfaceError) as caught:
        cudaguard.normalize(make(**more), consumer="dlpack")
    assert caught.value.field == field


def test_what_has_dlpack_already_is_handed_over_as_it_is():
    class Both:
        def __dlpack__(self):
            """It is there."""

    array = Both()
    assert cudaguard.normalize(array, consumer="dlpack") is array


@pytest.mark.parametrize("stream", [7, "nonsense"])
def test_stream_that_is_named_is_not_lost_on_what_has_dlpack(stream):
    class Both:
        def __dlpack__(self):
            """It knows nothing of that stream."""

        __cuda_array_interface__ = make().__cuda_array_interface__

    with pytest.raises(cudaguard.ArrayInterfaceError) as caught:
        cudaguard.normalize(Both(), consumer="dlpack", stream=stream)
    # Without a driver nobody knows the device; a bridge is what was asked for.
    assert caught.value.field == ("data" if stream == 7 else "stream")


def test_many_loans_take_no_longer_each(run):
    out = run(
        """
        view, held = bridge(array, stream=None), []
        looks = 0
        is_over = dlpack._Loan.is_over
        def counted(loan):
            global looks
            looks += 1
            return is_over(loan)
        dlpack._Loan.is_over = counted
        gc.disable()
        held = [Tensor(view.__dlpack__()) for _ in range(2000)]
        print(looks < 4 * 2000, len(dlpack._loans))
        for t in held: t.give_back()
        gc.collect()
        print(len(dlpack._loans))
        """
    )
    assert out == ["True 2000", "0"]


def test_what_is_no_array_is_refused_as_ever():
    with pytest.raises(cudaguard.ArrayInterfaceError):
        cudaguard.normalize(object(), consumer="dlpack")
