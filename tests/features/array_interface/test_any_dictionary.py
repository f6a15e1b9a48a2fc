"""Whatever an array exports: a conforming interface to the same bytes, or ArrayInterfaceError.

What conforms, and which bytes are meant, is written down here a second time, from the
specification and by other means than the package's own.
"""

from __future__ import annotations

import itertools
import re
import struct
import sys
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cudaguard
from cudaguard import ArrayInterfaceError
from cudaguard.features.array_interface.consumers import CONSUMERS

from .producers import MyInt, MyText, MyTuple, Number, Producer

LETTER = {"b1": "?", "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q",
          "u8": "Q", "f2": "e", "f4": "f", "f8": "d", "c8": "2f", "c16": "2d"}  # fmt: skip
TYPES = [
    *(f"{order}{kind}" for order in ("<", ">", "|", "=", "") for kind in LETTER),
    *(f"{order}{letter}" for order in ("=", "", "<", ">") for letter in "?bBhHiIqQefdFDlLgc"),
    "<V2", "|V7", "<U3", "|S4", "<M8[ns]", "m8", "O8", "|t1", "f3", "", "<", "nonsense",
]  # fmt: skip


def in_other_forms(numbers):
    return numbers | numbers.map(Number) | numbers.map(MyInt)


junk = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 5), st.floats(), st.text(max_size=4),
    st.binary(max_size=4), st.just(object()), st.just(10**400),
    st.lists(st.integers(-1, 4), max_size=3), st.dictionaries(st.text(max_size=2), st.none()),
)  # fmt: skip
small = in_other_forms(st.integers(0, 4))
sequences = [tuple, list, MyTuple]


@st.composite
def dictionaries(draw):
    """Mostly sensible ones, in many forms, some entries junk, some missing."""
    form = draw(st.sampled_from(sequences))
    shape = form(draw(st.lists(small, max_size=3)))
    steps = in_other_forms(st.integers(-24, 24))
    strides = form(draw(st.lists(steps, min_size=len(shape), max_size=len(shape))))
    text = draw(st.sampled_from(TYPES))
    pointer = draw(in_other_forms(st.sampled_from([0, 0x1000, 1 << 47, (1 << 64) - 8])))
    flag = draw(st.sampled_from([False, True, 0, 1]))
    entries = {
        "shape": shape,
        "typestr": draw(st.sampled_from([text, MyText(text)])),
        "data": draw(st.sampled_from(sequences))((pointer, flag)),
        "version": draw(in_other_forms(st.integers(0, 3))),
        "strides": draw(st.sampled_from([None, strides])),
        "stream": draw(st.none() | in_other_forms(st.integers(0, 9))),
        "mask": None,
        "descr": draw(st.sampled_from([[("", "<f4")], [["a", "<f4"]], (), None])),
        "further": 1,
    }
    for field in draw(st.sets(st.sampled_from(sorted(entries)), max_size=4)):
        del entries[field]
    for field in draw(st.sets(st.sampled_from(sorted(entries)), max_size=1)):
        if draw(st.booleans()):
            entries[field] = draw(junk)
    return entries


def is_int(value, least=0, most=(1 << 64) - 1):
    return type(value) is int and least <= value <= most


def conforms(entries, boolean="|b1"):
    """Is it as the specification has it? `boolean` is one more type, for those who want it."""
    if type(entries) is not dict:
        return False
    shape, data, typestr = entries["shape"], entries["data"], entries["typestr"]
    strides, stream = entries.get("strides"), entries.get("stream")
    mask = entries.get("mask")
    return (
        type(shape) is tuple and all(is_int(count) for count in shape)
        and type(data) is tuple and len(data) == 2 and is_int(data[0]) and type(data[1]) is bool
        and bool(data[0]) == (0 not in shape)
        and type(typestr) is str
        and (typestr == boolean
             or re.fullmatch(r"[<>|]([tbuifcmMSUV])[1-9][0-9]*(\[[a-z]+\])?", typestr) is not None)
        and not re.fullmatch(r"\|[iufcmM]([2-9]|1[0-9])(\[.*)?", typestr)
        and is_int(entries["version"], 0, 3)
        and (strides is None or (type(strides) is tuple and len(strides) == len(shape)
                                 and all(is_int(s, -(1 << 64)) for s in strides)))
        and (stream is None or (is_int(stream, 1) and entries["version"] == 3))
        and (mask is None or hasattr(mask, "__cuda_array_interface__"))
    )  # fmt: skip


def number(value):
    return value.value if isinstance(value, Number) else int(value)


def how_read(typestr):
    """The format, size and byte order by which bytes are read; letters are `struct`'s."""
    match = re.fullmatch(r"([<>=|]?)(.*)", typestr)
    order, rest = match.groups()
    letter = {"F": "2f", "D": "2d"}.get(rest, rest) if len(rest) == 1 else LETTER.get(rest)
    if letter is None:  # not a number: as many bytes
        count = int(re.search(r"[0-9]+", rest).group())
        if rest[0] == "t":
            count = -(-count // 8)
        return None, count * 4 if rest[0] == "U" else count, rest[0]
    one = struct.calcsize(f"={letter[-1]}")
    how = "" if one == 1 else "big" if order == ">" else sys.byteorder
    return letter, struct.calcsize(f"={letter}"), how


def bytes_of(entries):
    """The address of each element in turn, and how it is read."""
    shape = [number(count) for count in entries["shape"]]
    letter, size, order = how_read(entries["typestr"])
    if (strides := entries.get("strides")) is None:
        strides = [size] * len(shape)
        for at in range(len(shape) - 1, 0, -1):
            strides[at - 1] = strides[at] * shape[at]
    start = 0 if 0 in shape else number(entries["data"][0])
    places = [
        start + sum(i * number(step) for i, step in zip(element, strides))
        for element in itertools.product(*map(range, shape))
    ]
    return places, letter, size, order


@settings(max_examples=600)
@given(entries=dictionaries(), consumer=st.sampled_from([None, *(one.name for one in CONSUMERS)]))
def test_same_bytes_in_a_conforming_interface_or_an_error(entries, consumer):
    producer = Producer(entries)
    before = dict(entries)
    try:
        result = cudaguard.normalize(producer, consumer=consumer)
    except ArrayInterfaceError:
        return
    finally:
        assert producer.reads == 1
    assert producer.interface is entries
    assert list(before) == list(entries)
    assert all(entries[field] is value for field, value in before.items())
    found = result.__cuda_array_interface__
    profile = next((one for one in CONSUMERS if one.name == consumer), None)
    assert conforms(found, profile.boolean if profile else "|b1")
    assert bytes_of(found) == bytes_of(entries)
    assert bool(found["data"][1]) == bool(entries["data"][1])
    said = entries.get("stream")
    assert found.get("stream") == (None if said is None else number(said))
    assert found["version"] >= (number(entries["version"]) if "version" in entries else 2)
    assert repr(found.get("further")) == repr(entries.get("further"))  # nan is not equal to nan
    assert cudaguard.normalize(result, consumer=consumer) is result
    if consumer != "dali":
        assert cudaguard.validate(result) == []


@settings(max_examples=300)
@given(entries=dictionaries())
def test_validate_and_normalize_agree(entries):
    findings = cudaguard.validate(Producer(entries))
    fatal = [finding.what.split()[0] for finding in findings if finding.severity == "error"]
    refused = result = None
    try:
        result = cudaguard.normalize(Producer(entries))
    except ArrayInterfaceError as error:
        refused = error.field
    assert refused == (fatal[0] if fatal else None)
    if findings and not fatal:
        assert result.__cuda_array_interface__ is not entries


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(["shape", "typestr", "data", "stream"]), junk) | junk)
def test_junk_is_refused_and_nothing_else_happens(value):
    for wrapped in (value, MappingProxyType(value) if isinstance(value, dict) else value):
        with pytest.raises(ArrayInterfaceError):
            cudaguard.normalize(Producer(wrapped))


def test_time_limit_in_the_code_of_an_array_is_no_fault_of_its_entries(child):
    done = child.python("""
        import signal, cudaguard
        def stop(*_): raise TimeoutError("enough")
        signal.signal(signal.SIGALRM, stop)
        class Slow:
            def __len__(self): signal.raise_signal(signal.SIGALRM)
        class Array:
            __cuda_array_interface__ = {
                "shape": Slow(), "typestr": "<f4", "data": (4096, False), "version": 3,
            }
        for look in (cudaguard.normalize, cudaguard.validate):
            try:
                look(Array())
            except TimeoutError as error:
                print(error)
    """)
    assert done.stdout == "enough\nenough\n"
