"""Where a module is named in a source, in characters, and the line of carets below it."""

from __future__ import annotations

import pytest

from cudaguard import Rule
from cudaguard.system.source_file import source_of
from cudaguard.tools.lint.excerpt import WIDEST, excerpt, place_of
from cudaguard.tools.lint.policy import misplaced

AB = Rule("R1", ("b",), "b wants a first", needs=("a",))


def found(code, path="train.py"):
    """Return the source, and the place of the module that comes too early in it."""
    source = source_of(path, code if isinstance(code, bytes) else code.encode())
    (one,) = misplaced(source.imports, [AB])
    return source, place_of(one.then, source.lines), place_of(one.first, source.lines)


@pytest.mark.parametrize(
    ("code", "line", "column"),
    [
        ("import b\nimport a\n", 1, 8),
        ("import b.c as x\nimport a\n", 1, 8),
        ("from b import x\nimport a\n", 1, 6),
        ("import os, b\nimport a\n", 1, 12),
        ("import bb, b.b, b\nimport a\n", 1, 12),
        ("import os, \\\n    b\nimport a\n", 2, 5),
        ("from b import (  # b\n    b,\n)\nimport a\n", 1, 6),
        ("if x:\n\timport b\nimport a\n", 2, 9),
        ("x = 'ü', 'λ'; import b\nimport a\n", 1, 22),
        ("x = '😀', __import__('b')\nimport a\n", 1, 22),
        ("\ufeffimport b\nimport a\n", 1, 8),
        ("import b\r\nimport a\r\n", 1, 8),
        ("import os\rimport b\rimport a\r", 2, 8),
        ("x = '''\x0c\u2028'''\nimport b\nimport a\n", 2, 8),
        ("# -*- coding: latin-1 -*-\nx = 'ü'; import b\nimport a\n".encode("latin-1"), 2, 17),
        ("import b . c\nimport a\n", 1, 1),  # an odd way to write it: the statement
    ],
)
def test_columns_count_characters(code, line, column):
    _, early, _ = found(code)
    assert (early["line"], early["column"]) == (line, column)


def test_place_of_what_must_come_first():
    _, early, late = found("import b\nfrom a.b import c\n")
    assert early == {"cell": 0, "line": 1, "column": 8, "end_column": 9}
    assert late == {"cell": 0, "line": 2, "column": 6, "end_column": 9}


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("import b\nimport a\n", ["1 | import b", "  |        ^"]),
        ("if x:\n\timport b\nimport a\n", ["2 |     import b", "  |            ^"]),
        ("x = 'ü'; import b\nimport a\n", ["1 | x = 'ü'; import b", "  |                 ^"]),
        # Two columns for a wide character, none for one that combines.
        ("x = '漢'; import b\nimport a\n", ["1 | x = '漢'; import b", "  | " + 17 * " " + "^"]),
        ("x = 'e\u0301';import b\nimport a", ["1 | x = 'e\u0301';import b", f"  | {15 * ' '}^"]),
        ("x = '\x1b'; import b\nimport a", ["1 | x = '\\x1b'; import b", "  | " + 19 * " " + "^"]),
    ],
)  # fmt: skip
def test_carets_stand_below_the_name(code, shown):
    source, early, _ = found(code)
    assert excerpt([(early, "^", "")], source.lines[0]) == shown


def test_numbers_are_aligned_and_words_follow_the_marks():
    source, early, late = found("#\n" * 8 + "import b\nimport a\n")
    assert excerpt([(early, "^", ""), (late, "-", "first")], source.lines[0]) == [
        " 9 | import b",
        "   |        ^",
        "10 | import a",
        "   |        - first",
    ]


def test_long_line_is_cut_around_the_mark():
    source, early, _ = found(f"x = '{'y' * 5000}'; import b; z = '{'y' * 5000}'\nimport a\n")
    line, marks = excerpt([(early, "^", "")], source.lines[0])
    assert len(line) < WIDEST + 20
    assert line[marks.index("^")] == "b"
    assert (line[4:7], line[-3:]) == ("...", "...")
