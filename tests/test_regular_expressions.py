"""No regular expression of the package takes more than linear time, whatever the text is."""

from __future__ import annotations

import ast
import json
import os
import re
import sys

import pytest

from . import attacks

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="runs patterns in forks"),
]


def test_every_pattern_takes_long_lines(child, root):
    done = child.command(
        sys.executable, root / "tests" / "attacks.py", env={"PYTHONPATH": str(root)}, timeout=1800
    )
    told = json.loads(done.stdout)
    assert told["slow"] == []
    assert told["unknown"] == []
    assert told["patterns"] > 50


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        ("(a+)+b", "match"),
        ("begin.*end", "search"),
        (r"\d+\w*!", "match"),
        (r"(?<!\w)x\w*:", "search"),
        (r"Module\b.*?\s(\d+)\s", "search"),
        (r"/\S*-packages/", "sub"),
    ],
)
def test_generated_lines_find_patterns_that_are_slow(pattern, method):
    """All but one: its look behind makes it linear."""
    is_slow = attacks.is_slow(attacks.Use("", re.compile(pattern), method), 2)
    assert is_slow == ("(?<!" not in pattern)


def test_patterns_are_found_wherever_they_stand():
    source = """
import re
from re import search as look
_KEPT = re.compile("kept", re.MULTILINE)
def f(text, word):
    _KEPT.match(text)
    re.sub("in a call", "", text, flags=re.DOTALL)
    look("by another name", text)
    re.search(word, text)
"""
    variables = {"re": re, "_KEPT": re.compile("kept")}
    found, unknown = attacks._in_module("m", ast.parse(source), variables)
    assert {(use.pattern.pattern, use.method) for use in found} == {
        ("kept", "match"), ("in a call", "sub"), ("by another name", "search")
    }  # fmt: skip
    assert found[1].pattern.flags & re.DOTALL
    assert unknown == ["m:9"]
    kept = re.compile("in a table")
    assert list(attacks._patterns_in({"a": [(kept, "")]})) == [kept]


def test_texts_of_a_megabyte_are_explained_and_shared(child, root):
    """One line, in which every message that is known begins over and over, and never ends."""
    done = child.python(
        """
        from cudaguard.tools.explain import explain
        from cudaguard.tools.common import shareable
        from cudaguard.core.known_errors import literal_in
        from cudaguard.core.explain import known_errors
        import re

        patterns = [pattern for known in known_errors() for pattern in known.says]
        words = [word for pattern in patterns for word in re.findall(r"[\\w ]{6,}", pattern)]
        words += [literal_in(pattern) for pattern in patterns]
        words += ["/home/", "://", "@", "/t/", "~"]
        line = "".join(word * (1_000_000 // len(words) // len(word)) for word in words)
        assert len(line) > 900_000
        explain(line)
        shareable(line)
        """,
        env={"PYTHONPATH": str(root)},
        timeout=100,
    )
    assert done.stdout == ""
