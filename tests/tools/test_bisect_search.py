"""The searches of `cudaguard bisect`, on made-up worlds whose answer is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaguard.system.child import Failure, error_of
from cudaguard.tools.bisect.command import is_like
from cudaguard.tools.bisect.search import BAD, GOOD, UNSURE, among, ddmin, in_front, shortest_prefix

NAMES = tuple(f"m{number}" for number in range(1, 16))


class World:
    """Fails if some modules are imported before another; counts what it is asked."""

    def __init__(self, guilty, culprit, own=(), unsure=lambda order: False):
        self.guilty, self.culprit, self.own, self.unsure = set(guilty), culprit, own, unsure
        self.asked = {}

    def __call__(self, names):
        order = (*names, *(name for name in self.own if name not in names))
        if self.unsure(order):
            verdict = UNSURE
        else:
            fails = self.culprit in order and self.guilty <= set(order[: order.index(self.culprit)])
            verdict = BAD if fails else GOOD
        self.asked[names] = verdict
        return verdict


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(0, 30))
def test_ddmin_finds_exactly_what_is_needed(wanted, more):
    items = tuple(range(max(wanted) + 1 + more))
    asked = []
    found = ddmin(items, lambda part: bool(asked.append(part)) or wanted <= set(part))
    assert found == tuple(sorted(wanted))
    assert all(0 < len(part) < len(items) for part in asked)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_what_ddmin_returns_holds_and_nothing_can_be_left_out(bits):
    """Also where a part may hold although a larger one does not."""
    items = tuple(range(len(bits)))

    def holds(part):
        return part == items or hash((part, tuple(bits))) % 3 == 0

    found = ddmin(items, holds)
    assert holds(found)
    for item in found:
        rest = tuple(other for other in found if other != item)
        assert not rest or not holds(rest)


@pytest.mark.parametrize("length", range(1, 16))
def test_shortest_prefix_in_logarithmic_time(length):
    asked = []

    def trial(names):
        asked.append(names)
        return BAD if len(names) >= length else GOOD

    assert shortest_prefix(NAMES, trial) == length
    assert len(asked) <= math.ceil(math.log2(len(NAMES)))


@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=4), st.booleans())
def test_among_finds_what_was_planted(chosen, is_known):
    order = sorted(chosen, key=NAMES.index)
    culprit = NAMES[-1] if NAMES[-1] not in chosen else order.pop()
    if not order:
        return
    world = World(order, culprit)
    found = among(NAMES, world, NAMES.index(culprit) + 1 if is_known else 0)
    assert found.failing == (*order, culprit)
    assert found.working == (culprit, *order)
    assert (found.first, found.then) == ((culprit,), tuple(order))
    assert world(found.working) == GOOD


def test_what_is_missing_is_found_beside_one_that_is_in_the_way():
    def trial(names):
        if "spoiler" in names:
            return UNSURE
        return GOOD if names[:1] == ("torch",) else BAD

    assert among(("ext", "torch", "spoiler"), trial, 1).working == ("torch", "ext")


def test_among_finds_the_one_order_of_three_that_works():
    works = {("a",), ("a", "b"), ("c",), ("a", "c"), ("b", "c"), ("b", "a", "c")}
    found = among(("a", "b", "c"), lambda order: GOOD if order in works else BAD)
    assert (found.failing, found.working) == (("a", "b", "c"), ("b", "a", "c"))


def test_orders_that_cannot_say_are_neither_good_nor_bad():
    # m5 is needed by m6 for something else: without it that is another failure.
    world = World({"m4"}, "m11", unsure=lambda order: "m6" in order and "m5" not in order)
    assert among(NAMES, world).failing == ("m4", "m11")


@given(st.permutations(NAMES), st.integers(0, 13), st.integers(1, 14))
def test_in_front_finds_what_was_planted(order, place, later):
    order = tuple(order)
    first, culprit = order[place], order[max(later, place + 1)]
    world = World({first}, culprit, own=order)
    found = in_front(order, world)
    assert found.failing == (first, culprit)
    assert found.working == (culprit, first)
    assert world(()) == BAD


def test_in_front_where_the_reverse_fails_in_another_way():
    world = World({"m2"}, "m5", own=NAMES, unsure=lambda order: order.index("m9") < 3)
    assert in_front(NAMES, world).working == ("m5", "m2")


def test_in_front_where_only_the_programs_own_doings_matter():
    """Importing m7 first helps; having imported the rest before it does no harm by itself."""
    found = in_front(NAMES, lambda names: GOOD if "m7" in names else BAD)
    assert found.first == ("m7",)
    assert found.then == ("m1",)
    assert found.working[0] == "m7"


def test_in_front_where_all_of_them_must_be_imported_first():
    found = in_front(("a", "b"), lambda names: GOOD if names == ("b", "a") else BAD)
    assert (found.working, found.first, found.then) == (("b", "a"), ("b",), ("a",))
    found = in_front(("a",), lambda names: GOOD if names else BAD)
    assert (found.working, found.first, found.then) == (("a",), ("a",), ())


def test_in_front_finds_nothing_where_nothing_helps():
    assert in_front(NAMES, lambda names: BAD) is None
    assert in_front(("m1",), lambda names: BAD) is None


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (("signal", "SIGSEGV"), ("signal", "SIGABRT"), True),
        (("signal", "SIGSEGV"), ("signal", "SIGKILL"), False),
        (("hang", ""), ("hang", ""), True),
        (("hang", ""), ("signal", "SIGSEGV"), False),
        (("exit", "3"), ("exit", "4"), False),
        (("error", "AssertionError: 0.1 differs"), ("error", "AssertionError: 0.2 differs"), True),
        (("error", "AssertionError"), ("error", "NameError: name 'x' is not defined"), False),
        (
            ("error", "ImportError: /a/b.so: undefined symbol: f"),
            ("error", "ImportError: cannot import name 'x'"),
            False,
        ),
        (
            ("error", "ImportError: no symbol at 0x7f12"),
            ("error", "ImportError: no symbol at 0x8a"),
            True,
        ),
    ],
)
def test_likeness_of_failures(one, other, alike):
    one, other = Failure(*one), Failure(*other)
    assert is_like(one, other) is is_like(other, one) is alike


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("Traceback ...\n  File\nValueError: 3 is wrong\n", "ValueError: 3 is wrong"),
        ("Traceback ...\n  File\nAssertionError\nbye\n", "AssertionError"),
        ("torch.cuda.OutOfMemoryError: CUDA out\n", "torch.cuda.OutOfMemoryError: CUDA out"),
        ("usage: train [-h]\ntrain: error: no\n", ""),
        ("", ""),
    ],
)
def test_last_error_of_an_output(output, error):
    assert error_of(output) == error
