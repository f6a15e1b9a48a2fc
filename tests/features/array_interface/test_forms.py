"""What is brought into the form of the specification, and what is refused: entry by entry."""

from __future__ import annotations

import ctypes
from collections import OrderedDict, UserDict, defaultdict
from decimal import Decimal
from types import MappingProxyType

import pytest

import cudaguard
from cudaguard import ArrayInterfaceError

from .producers import MyInt, MyText, MyTuple, Number, Producer, interface, make


class Shape:
    """A sequence of its own kind, as CV-CUDA has one."""

    def __len__(self):
        return 2

    def __iter__(self):
        return iter((2, 2))


class Endless:
    def __len__(self):
        return 2

    def __iter__(self):
        while True:
            yield 1


class Enormous(Endless):
    def __len__(self):
        return 1 << 40


class Short(Shape):
    def __len__(self):
        return 3


class NumpyBool:
    """A truth value without an index, as NumPy's is."""

    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return self.value

    def __eq__(self, other):
        return self.value == other

    __hash__ = None


class Hostile:
    """Raises whatever is done to it."""

    def _raise(self, *_):
        raise RuntimeError("hostile")

    __index__ = __len__ = __iter__ = __bool__ = __eq__ = __repr__ = __str__ = _raise
    __hash__ = None


TYPES = {
    "f4": "<f4", "=f4": "<f4", "|f4": "<f4", "=f": "<f4", "f": "<f4", "=B": "|u1", "u1": "|u1",
    "=q": "<i8", ">h": ">i2", "=F": "<c8", "?": "|b1", "=?": "|b1", "|?": "|b1", "b1": "|b1",
    "b": "|i1", "V2": "|V2", "M8[ns]": "<M8[ns]",
}  # fmt: skip
MENDED = [
    ("shape", [4], (4,)), ("shape", MyTuple((4,)), (4,)), ("shape", (Number(4),), (4,)),
    ("shape", (MyInt(4),), (4,)), ("shape", Shape(), (2, 2)), ("shape", Endless(), (1, 1)),
    *(("typestr", text, legal) for text, legal in TYPES.items()),
    ("typestr", MyText("<f4"), "<f4"), ("data", [0x1000, False], (0x1000, False)),
    ("data", MyTuple((0x1000, True)), (0x1000, True)),
    ("data", (Number(0x1000), False), (0x1000, False)),
    ("data", (MyInt(0x1000), False), (0x1000, False)), ("data", (0x1000, 0), (0x1000, False)),
    ("data", (0x1000, 1), (0x1000, True)), ("data", (0x1000, NumpyBool(True)), (0x1000, True)),
    ("data", (0x1000, NumpyBool(False)), (0x1000, False)), ("version", ..., 2),
    ("version", Number(3), 3), ("version", MyInt(3), 3), ("strides", [4], (4,)),
    ("strides", (Number(-4),), (-4,)), ("stream", Number(7), 7), ("stream", MyInt(7), 7),
]  # fmt: skip


def named(value):
    """The id of a case: what can be shown of it."""
    try:
        return repr(value).partition(" at 0x")[0][:30]
    except (RuntimeError, ValueError):
        return "hostile"


def same_types(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same_types, one, other))
    return True


@pytest.mark.parametrize(("field", "value", "expected"), MENDED, ids=named)
def test_same_thing_in_another_form_is_brought_into_the_legal_one(field, value, expected):
    producer = Producer(interface(**{field: value}))
    before = dict(producer.interface)
    result = cudaguard.normalize(producer)
    entries = result.__cuda_array_interface__
    assert entries[field] == expected
    assert same_types(entries[field], expected)
    assert {f: v for f, v in entries.items() if f != field} == interface(**{field: ...})
    assert result is not producer
    assert producer.reads == 1
    (finding,) = cudaguard.validate(producer)
    assert (finding.severity, finding.what.partition(" of ")[0]) == ("warning", field)
    assert repr(expected) in finding.remedy
    assert cudaguard.validate(result) == []
    assert producer.interface == before


NONSENSE = ["4", b"4", 4.0, {}, {4}, None, Hostile(), object(), range]
REFUSED = [
    *(("shape", value) for value in NONSENSE),
    *(("shape", (value,)) for value in ("4", 4.0, None, True, Hostile(), Decimal(4))),
    ("shape", (-1,)),
    ("shape", [MyInt(-1)]),
    ("shape", ...),
    ("shape", (1,) * 65),
    ("shape", [1] * 10**6),
    ("shape", (2,) * 10**6),
    ("shape", Enormous()),
    ("shape", Short()),
    ("shape", (1 << 70,)),
    ("shape", (1 << 70, 0)),
    *(("typestr", value) for value in (4, None, Hostile(), ["<f4"], float)),
    *(("typestr", value) for value in ("", "<", "x4", "<f3", "<f1", "<c4", "<b2", "4f")),
    *(("typestr", value) for value in ("=l", "l", "=L", "O", "|O8", "<f4\n", " <f4", "<f4[ns]")),
    *(("typestr", value) for value in ("<f\u0664", "<f04", "V0", "S", "g", "V" + "9" * 5000)),
    *(("typestr", value) for value in (b"<f4", "~f4", "<<f4", "<m8[" + "s" * 99 + "]")),
    ("typestr", ...),
    *(("data", value) for value in (*NONSENSE, 0x1000, (), (0x1000,), (0x1000, False, 0))),
    *(("data", (value, False)) for value in ("4096", 4096.0, None, True, Hostile())),
    *(("data", (value, False)) for value in (0, -1, 1 << 64)),
    *(("data", (0x1000, value)) for value in ("no", None, 2, 0.5, [], Hostile())),
    ("data", ctypes.c_void_p(0x1000)),
    ("data", ...),
    *(("version", value) for value in ("3", 3.0, True, None, -1, 4, (3,), Hostile(), 1 << 5000)),
    *(("strides", value) for value in NONSENSE if value is not None),
    *(("strides", value) for value in ((), (4, 4), (4.0,), (True,), (1 << 64,), (Hostile(),))),
    *(("mask", value) for value in ({}, True, Hostile(), interface(), Producer(None))),
    *(("stream", value) for value in ("1", 1.0, True, -1, 1 << 64, (1,), Hostile())),
    ("stream", 0),
    ("stream", Number(0)),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=named)
@pytest.mark.parametrize("consumer", [None, "torch", "dali", "cupy"])
def test_nonsense_is_refused_with_the_field_that_validate_names(field, value, consumer):
    producer = Producer(interface(**{field: value}))
    with pytest.raises(ArrayInterfaceError) as caught:
        cudaguard.normalize(producer, consumer=consumer)
    error = caught.value
    assert error.field == field
    assert error.value
    assert len(error.value) < 250
    assert error.rule
    assert error.remedy
    for part in (repr(field), error.value, error.rule, error.remedy, "producers.Producer"):
        assert part in str(error)
    assert producer.reads == 1
    findings = cudaguard.validate(producer)
    (fault,) = [finding for finding in findings if finding.severity == "error"]
    assert fault.id == "CG833"
    assert fault.what.startswith(f"{field} of ")
    assert fault.remedy
    assert producer.reads == 2


def test_validate_lists_all_faults_at_once():
    producer = make(shape=[4], typestr="nonsense", data=[0x1000, 0], version=..., stream=0)
    found = [(f.severity, f.what.partition(" of ")[0]) for f in cudaguard.validate(producer)]
    assert found == [
        ("error", "typestr"),
        ("warning", "shape"),
        ("warning", "data"),
        ("error", "stream"),
        ("warning", "version"),
    ]


@pytest.mark.parametrize("version", [0, 1, 2, ...])
def test_stream_in_a_version_without_streams_is_told_of(version):
    (finding,) = cudaguard.validate(make(version=version, stream=7))
    assert (finding.severity, finding.what.partition(" of ")[0]) == ("warning", "version")
    assert finding.remedy == "write 3, as normalize() does"
    (finding,) = cudaguard.validate(make(version=..., stream=None))
    assert finding.remedy == "write 2, as normalize() does"


LEGAL = [
    {}, {"strides": None}, {"strides": (4,)}, {"strides": (0,)}, {"strides": (-4,)},
    {"strides": (4000,)}, {"shape": (), "strides": ()}, {"shape": ()},
    {"shape": (0,), "data": (0, False)}, {"shape": (1 << 62, 0, 1 << 62), "data": (0, True)},
    {"shape": (1 << 40,), "strides": (0,)},
    {"shape": (2, 0), "strides": (-8, -4), "data": (0, False)}, {"shape": (1,) * 64},
    {"data": (0x1000, True)}, {"version": 2}, {"version": 1}, {"version": 0}, {"stream": 1},
    {"stream": 2}, {"stream": (1 << 64) - 1}, {"typestr": ">f4"}, {"typestr": "<V2"},
    {"typestr": "|V6", "descr": [("a", "<f4"), ("b", "<i2")]}, {"typestr": "<M8[ns]"},
    {"typestr": "<U3"}, {"typestr": "<c8", "descr": [("", "<c8")]}, {"anything": "else"},
    {"mask": make(typestr="|b1")},
]  # fmt: skip


@pytest.mark.parametrize("changes", LEGAL, ids=named)
def test_what_conforms_is_handed_over_as_it_is(changes):
    producer = make(**changes)
    assert cudaguard.validate(producer) == []
    assert cudaguard.normalize(producer) is producer
    assert producer.reads == 2


@pytest.mark.parametrize("field", ["strides", "mask", "stream", "descr"])
def test_none_conforms_and_is_left_out_for_readers_that_stumble_over_it(field):
    array = make(**{field: None})
    assert cudaguard.validate(array) == []
    entries = cudaguard.normalize(array).__cuda_array_interface__
    assert entries == (interface() if field in ("mask", "stream") else array.interface)


@pytest.mark.parametrize(
    "make_mapping",
    [
        MappingProxyType,
        OrderedDict,
        UserDict,
        lambda entries: defaultdict(Hostile, entries),
        type("Dict", (dict,), {"__iter__": Hostile._raise, "__getitem__": Hostile._raise}),
    ],
)
def test_any_mapping_becomes_a_dictionary(make_mapping):
    producer = Producer(make_mapping(interface(stream=5)))
    entries = cudaguard.normalize(producer).__cuda_array_interface__
    assert type(entries) is dict
    assert entries == interface(stream=5)


class HostileMapping(UserDict):
    def __getitem__(self, key):
        raise RuntimeError("hostile")


@pytest.mark.parametrize("value", [None, 4, [], "text", HostileMapping(interface()), Hostile()])
def test_what_is_no_mapping_is_refused(value):
    with pytest.raises(ArrayInterfaceError) as caught:
        cudaguard.normalize(Producer(value))
    assert caught.value.field == "__cuda_array_interface__"
    (finding,) = cudaguard.validate(Producer(value))
    assert finding.severity == "error"


def test_array_without_elements_has_no_address():
    for address in (None, 0x1000, 0, Number(0)):
        for shape in ((0,), [0], (2, 0)):
            result = cudaguard.normalize(make(shape=shape, data=(address, False)))
            assert result.__cuda_array_interface__["data"] == (0, False)
    (finding,) = cudaguard.validate(make(shape=(0,), data=(0x1000, False)))
    assert finding.what.startswith("data of ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("\U000e0001" * 5000, "'\\U000e0001\\U000e0001\\U000e0001\\U000e0001\\U000e0001\\U000e..."),
        ("V" * 5000, f"'{'V' * 56}..."),
        (b"V" * 5000, f"b'{'V' * 55}..."),
        (10**5000, "an integer of 16610 bits"),
        ((1, 2, 3, 4, 5, 6, 7.0), "(1, 2, 3, 4, 5, 6, ...)"),
        ([(1,), ((),)], "[(1,), (an object of type tuple,)]"),
        (Hostile(), "an object of type tests.features.array_interface.test_forms.Hostile"),
        (None, "None"),
        (True, "True"),
    ],
    ids=named,
)
def test_value_is_shown_in_short_and_foreign_code_is_not_run_for_it(value, text):
    with pytest.raises(ArrayInterfaceError) as caught:
        cudaguard.normalize(make(typestr=value))
    assert caught.value.value == text


def test_error_can_be_pickled_and_is_a_type_error():
    import pickle

    with pytest.raises(TypeError) as caught:
        cudaguard.normalize(make(version="3"))
    assert isinstance(caught.value, cudaguard.CudaGuardError)
    twin = pickle.loads(pickle.dumps(caught.value))
    assert (str(twin), vars(twin)) == (str(caught.value), vars(caught.value))
    assert str(twin) == (
        "__cuda_array_interface__['version'] of "
        "tests.features.array_interface.producers.Producer is '3': it must be "
        "an integer, and 3 is the newest version there is. Remedy: correct what the producer "
        "exports."
    )
    assert caught.value.field == "version"
    assert caught.value.value == "'3'"
