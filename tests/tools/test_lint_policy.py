"""Which import statements stand in a forbidden order, judged from source alone."""

from __future__ import annotations

import ast
import os
import textwrap
from pathlib import Path

import pytest

from cudaguard import Rule
from cudaguard.core.decide import may_apply
from cudaguard.system.source import Code, Import, Module, absolute, read
from cudaguard.tools.lint import files_below, misplaced

from ..documents import toml

AB = Rule("R1", ("b",), "b wants a first", needs=("a",))


def statements(code):
    code = Code(ast.parse(textwrap.dedent(code)), Module("__main__", "", "x.py"))
    return [*code.steps(), *code.later()]


def imports(source):
    steps = source.code.steps() if source.code else ()
    return [step for step in steps if isinstance(step, Import)]


def lines(code, *rules):
    return [(one.then.line, one.first.line) for one in misplaced(statements(code), rules or (AB,))]


PROGRAMS = toml(Path(__file__).with_name("lint_orders.toml"))


@pytest.mark.parametrize("code", PROGRAMS["wrong"])
def test_wrong_order(code):
    (found,) = misplaced(statements(code), [AB])
    assert (found.needed, found.early) == ("a", "b")


@pytest.mark.parametrize("code", PROGRAMS["right"])
def test_nothing_wrong(code):
    assert misplaced(statements(code), [AB]) == []


def test_each_arm_is_judged_by_itself():
    code = """
        if x:
            import b
            import a
        else:
            import b
            import a
    """
    assert lines(code) == [(3, 4), (6, 7)]


@pytest.mark.skipif("not hasattr(ast, 'Match')", reason="match came with Python 3.10")
def test_arms_of_match():
    code = "match x:\n    case 1:\n        import b\n    case 2:\n        import a"
    assert lines(code) == []
    assert lines(f"{code}\nimport a") == [(3, 6)]


def test_module_from_a_package_that_others_share():
    rule = Rule("R1", ("nvidia.dali",), "w", needs=("torch",))
    assert lines("from nvidia import dali\nimport torch", rule) == [(1, 2)]
    assert lines("import nvidia.dali.fn\nimport torch", rule) == [(1, 2)]
    assert lines("from nvidia import nvimgcodec\nimport torch", rule) == []
    assert lines("import nvidia\nimport torch", rule) == []


def test_order_among_what_a_rule_needs():
    rule = Rule("R1", ("c",), "w", needs=("a", "context", "b"))
    assert lines("import b\nimport a\nimport c", rule) == [(1, 2)]
    assert lines("import c\nimport b", rule) == [(1, 2)]
    assert lines("import a\nimport b\nimport c", rule) == []


def test_several_watched_and_several_rules():
    rules = [Rule("R1", ("b", "c"), "w", needs=("a",)), Rule("R2", ("d",), "w", needs=("a",))]
    assert lines("import d\nimport c\nimport b\nimport a", *rules) == [(1, 4), (2, 4), (3, 4)]


class Versions:
    python, platform, machine, environ = "3.11.1", "darwin", "arm64", {}

    def __init__(self, **versions):
        self.versions = versions

    def version(self, dist):
        return self.versions.get(dist)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({}, True),  # a hook of pre-commit has an environment of its own
        ({"tensorrt": "8.6.1"}, True),
        ({"tensorrt": "9.0"}, False),
        ({"tensorrt": "8.6.1", "torch": "2.0.1"}, True),
        ({"tensorrt": "8.6.1", "torch": "2.5.1"}, False),
        ({"torch": "2.5.1"}, False),
    ],
)
def test_only_versions_that_are_here_count_against_a_rule(versions, expected):
    rule = Rule(
        "R1", ("tensorrt",), "w", needs=("torch",),
        dist=("tensorrt>=8.6,<8.7", "tensorrt-bindings<8.7"),
        when={"platform": "linux", "dists": {"torch": ">=2.0.1,<2.1"}},
    )  # fmt: skip
    assert may_apply(rule, Versions(**versions)) is expected


def test_comments_silence(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "import a  # cudaguard: ignore[R1, R2] because\n"
        "import b  # cudaguard: ignore\n"
        "from c import (\n    d,  # noqa  # cudaguard: ignore[R3]\n)\n"
        "import e; x = '# cudaguard: ignore'\n"
    )
    source = read(str(path))
    a, b, c, e = imports(source)
    assert [source.is_silenced(id, a) for id in ("R1", "R2", "R3")] == [True, True, False]
    assert source.is_silenced("R9", b)
    assert source.is_silenced("R3", c)
    assert not source.is_silenced("R1", e)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"import (", "cannot parse line 1: "),
        (b"\xff\xfe", "encoding"),
        (b"x = 1\0", "null bytes"),
        (b"(" * 5000, ""),
    ],
)
def test_what_cannot_be_parsed_is_told(tmp_path, data, problem):
    path = tmp_path / "x.py"
    path.write_bytes(data)
    source = read(str(path))
    assert imports(source) == []
    assert source.problem
    assert problem in source.problem
    assert read(str(tmp_path / "absent.py")).problem.startswith("cannot be read: ")
    assert read("x.ipynb").problem.startswith("is a notebook")


def test_deep_expressions_and_warnings_are_no_problem(tmp_path, recwarn):
    path = tmp_path / "x.py"
    path.write_text("x = " + " + ".join(["1"] * 900) + "\ny = '\\d'\nimport a\n")
    source = read(str(path))
    assert ([one.name for one in imports(source)], source.problem) == (["a"], "")
    assert not list(recwarn)


def test_relative_names_are_no_modules():
    found = statements("from importlib import import_module as im\nim('.b', 'p'); im(name='..b')")
    assert [one.module for one in found] == ["importlib"]


def test_other_encodings(tmp_path):
    path = tmp_path / "x.py"
    path.write_bytes("# coding: latin-1\nimport a  # é cudaguard: ignore\n".encode("latin-1"))
    source = read(str(path))
    assert source.problem == ""
    assert source.is_silenced("R1", imports(source)[0])
    path.write_bytes(b"\xef\xbb\xbfimport a")
    assert imports(read(str(path)))[0].name == "a"


def test_relative_import_names_what_python_imports():
    assert [absolute("x", n, "a.b") for n in range(6)] == ["x", "a.b.x", "a.x", "", "", ""]


def test_files_of_a_folder(tmp_path):
    for name in (
        "b.py", "a.py", "x.ipynb", "sub/c.py", "notes.txt", ".hidden/x.py", "__pycache__/x.py",
        "env/pyvenv.cfg", "env/lib/x.py", "lib/site-packages/x.py",
        "conda/conda-meta/x.json", "conda/lib/x.py",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    os.mkfifo(tmp_path / "pipe.py")  # would be read for ever
    (tmp_path / ".#b.py").symlink_to("somebody@somewhere.1")  # how Emacs marks what is edited
    names = [name[len(str(tmp_path)) + 1 :] for name in files_below(str(tmp_path))]
    assert names == ["a.py", "b.py", "sub/c.py"]
    assert files_below("no/such/file") == ["no/such/file"]


def test_folder_that_cannot_be_read_is_told(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:  # to whom nothing is closed
        os.seteuid(65534)
    try:
        (file,) = files_below(str(folder))
        assert read(file).problem == "cannot be read: Permission denied"
    finally:
        os.seteuid(user)
        folder.chmod(0o700)
