"""The words of arguments and ``CUDAGUARD*`` variables, and what was probably meant by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaguard.config import parse_mode, parse_switches, read_environment
from cudaguard.files.text import close_match, closest_id, same_id
from cudaguard.model import MODES

VARIABLES = ["", "_RULES", "_CONFIG", "_JOURNAL", "_PLUGINS"]
IDS = ("CG001", "CG010", "CG812", "CG901", "Local-1")
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        *((mode, mode) for mode in MODES),
        *((word, "off") for word in ("0", "false", "no")),
        *((word, "fix") for word in ("1", "on", "true", "yes")),
    ],
)
def test_mode_words_in_any_case_and_with_blanks(word, mode):
    for spelled in (word, word.upper(), word.title(), f" {word}\t\n"):
        assert parse_mode(spelled, "here") == mode


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
def test_switches_from_any_collection(kind):
    assert parse_switches(kind(["A", " B "]), kind(["C"]), "here") == {
        "A": True,
        "B": True,
        "C": False,
    }
    assert parse_switches((), (), "here") == {}


def test_environment_that_says_nothing():
    for environ in ({}, {f"CUDAGUARD{name}": "" for name in VARIABLES}):
        said, problems = read_environment(environ)
        assert problems == []
        assert said.mode is None
        assert said.plugins is None
        assert (said.switches, said.journal, said.config) == ({}, "", "")


def test_environment_that_says_everything():
    said, problems = read_environment(
        {
            "CUDAGUARD": "Strict",
            "CUDAGUARD_RULES": "+CG041,-CG001 +MINE-1",
            "CUDAGUARD_CONFIG": "/a/b.toml",
            "CUDAGUARD_JOURNAL": "/logs/j-%p",
            "CUDAGUARD_PLUGINS": "1",
            "OTHER": "x",
        }
    )
    assert problems == []
    assert said.mode == "strict"
    assert said.switches == {"CG041": True, "CG001": False, "MINE-1": True}
    assert (said.config, said.journal, said.plugins) == ("/a/b.toml", "/logs/j-%p", True)


@pytest.mark.parametrize(
    ("word", "plugins"),
    [("0", False), ("no", False), ("OFF", False), (" false ", False), ("1", True), ("yes", True),
     ("anything", True), ("  ", None)],
)  # fmt: skip
def test_plugins_variable(word, plugins):
    assert read_environment({"CUDAGUARD_PLUGINS": word})[0].plugins is plugins


@given(st.fixed_dictionaries({}, optional={f"CUDAGUARD{name}": TEXTS for name in VARIABLES}))
def test_no_environment_makes_the_reader_raise(environ):
    said, problems = read_environment(environ)
    assert said.mode in (None, *MODES)
    assert all(isinstance(problem, str) and problem for problem in problems)
    assert all(isinstance(id, str) and id for id in said.switches)


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
