"""What was probably meant by a word or an id."""

from __future__ import annotations

import pytest

from cudaguard.files.text import close_match, closest_id, same_id

IDS = ("CG001", "CG010", "CG812", "CG901", "Local-1")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("cg0O1", "CG001"), ("CG1", "CG001"), ("cg-1", "CG001"), ("CGO10", "CG010"),
        ("cg8I2", "CG812"), ("CG9011", "CG901"), ("local-1", "Local-1"), ("hello", ""), ("", ""),
        ("CG999", ""), ("cg811", ""),
    ],
)  # fmt: skip
def test_id_that_was_meant(word, meant):
    assert closest_id(word, IDS) == meant


def test_same_id_in_any_case():
    assert [same_id(id, IDS) for id in ("cg001", "LOCAL-1", "CG812", "CG1", "")] == [
        "CG001", "Local-1", "CG812", "", "",
    ]  # fmt: skip


def test_word_that_was_meant():
    assert close_match("docter", ("doctor", "demo")) == "doctor"
    assert close_match("xyz", ("doctor", "demo")) == close_match(3, ("doctor",)) == ""
