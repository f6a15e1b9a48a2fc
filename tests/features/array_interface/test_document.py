"""docs/howto/arrays.md: its tables are the data, its code runs, and what it quotes is said."""

from __future__ import annotations

import re

import pytest

from cudaguard.features.array_interface.consumers import (
    CONSUMERS,
    DENSE,
    FORWARD,
    HEEDS,
    IGNORES,
    REFUSES,
)
from cudaguard.features.array_interface.interface import SPECIFICATION, ArrayInterface
from cudaguard.features.array_interface.producers import PRODUCERS


@pytest.fixture(scope="module")
def text(root):
    return (root / "docs" / "howto" / "arrays.md").read_text(encoding="utf-8")


def linked(evidence):
    links = [f"[{number}]({item})" for number, item in enumerate(
        (item for item in evidence if item.startswith("https://")), 1)]  # fmt: skip
    return ", ".join([*(item for item in evidence if not item.startswith("https://")), *links])


def row_of_consumer(one):
    """What a reader is told of a consumer."""
    order = "waits itself"
    if one.stream == IGNORES:
        order = "its own stream is made to wait" if one.current_stream else "the host waits for it"
    refused = [
        words
        for words, is_so in (
            ("big-endian types", ">" in one.misreads),
            ("complex types", "c" in one.misreads),
            ("all but C order without gaps", one.strides == DENSE),
            ("strides that are negative or no multiples of the element", one.strides == FORWARD),
            ("arrays without dimensions", one.least_dimensions > 0),
            ("read-only arrays", one.read_only == REFUSES),
            ("version 2 without a stream", one.least_version == 3),
        )
        if is_so
    ]
    written = [
        words
        for words, is_so in (
            ("no `stream: None` (1.32 to 1.36)", not one.takes_no_stream),
            ("`\\|b1` as `\\|?`", one.boolean != "|b1"),
            ("versions 0 and 1 as 2", one.least_version == 2),
        )
        if is_so
    ]
    told = "warned of" if one.read_only == IGNORES else ""
    dlpack = "yes" if one.prefers_dlpack else ""
    cells = (f"`{one.name}`", order, "; ".join(refused), "; ".join(written), told, dlpack)
    return f"| {' | '.join(cells)} | {linked(one.evidence)} |"


def row_of_producer(one):
    zero = "" if one.zero is None else f"{one.zero}"
    if one.zero_unless:
        zero += f", not under `{one.zero_unless}`"
    return f"| `{one.name}` | {one.exports} | {zero} | {linked(one.evidence)} |"


@pytest.mark.parametrize("one", CONSUMERS, ids=lambda one: one.name)
def test_every_consumer_has_its_row(text, one):
    assert row_of_consumer(one) in text.splitlines()
    assert one.mask != HEEDS  # as the text says of all of them


@pytest.mark.parametrize("one", PRODUCERS, ids=lambda one: one.name)
def test_every_producer_has_its_row(text, one):
    assert row_of_producer(one) in text.splitlines()


def test_there_are_no_other_rows(text):
    rows = re.findall(r"^\| `(?:[a-z0-9]+\.?)+` \|", text, re.MULTILINE)
    assert len(rows) == len(CONSUMERS) + len(PRODUCERS) + len(SPECIFICATION)


def test_every_entry_of_the_specification_has_its_row(text):
    fields = re.findall(r"^\| `(\w+)` \| .* \| since [0-3] \|$", text, re.MULTILINE)
    assert fields == list(SPECIFICATION)
    assert set(ArrayInterface.__annotations__) == set(SPECIFICATION)
    assert ArrayInterface.__required_keys__ == {"shape", "typestr", "data", "version"}


def test_code_runs_and_prints_what_is_shown(child, text):
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    done = child.python("".join(blocks))
    assert done.stderr == ""
    assert " ".join(done.stdout.split()) == " ".join(shown.split())
