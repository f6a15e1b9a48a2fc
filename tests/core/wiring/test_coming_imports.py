"""An opt-in order that nobody has enabled: kept where the program imports both anyway.

Red and green in one table: each program prints the order in which its two modules came.
"""

from __future__ import annotations

import sys

import pytest

INSTALL = "cudaguard.install({mode!r}, rules=[rule(grade='opt-in', **{more!r})])\n"


@pytest.fixture
def order(program):
    """Run a file of the program's under the rule, and return the order of the modules."""

    def run(source, mode="fix", **more):
        program.write("main.py", "from scene import *\nimport main_part\nprint(order())\n")
        install = INSTALL.format(mode=mode, more=more)
        program.write("main_part.py", f"from scene import *\n{install}{source}\n")
        done = program.child.command(sys.executable, "main.py")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    return run


FOLLOWS = {
    "the next statement": "import target\nimport needed",
    "others between": "import target\nimport json\nfrom os import path\nimport needed",
    "constants and definitions between": "import target\nX = 'y'\n'a text'\ndef f(): pass\n"
    "import needed",
    "from": "import target\nfrom needed import WHO",
    "one statement": "import target, needed",
    "a block": "with cudaguard.guard():\n    import target\n    import needed",
    "a function": "def main():\n    import target\n    import needed\nmain()",
    "a branch": "if order() == '':\n    import target\n    import needed",
    "the other branch": "if order():\n    pass\nelse:\n    import target\n    import needed",
    "from outside": "import indirect\nimport needed",
}


@pytest.mark.parametrize("source", FOLLOWS.values(), ids=FOLLOWS)
def test_what_the_program_imports_next_comes_first(order, program, source):
    program.write("indirect.py", "import target\nX = 1\n")
    assert order(source, mode="observe") == ("target needed", "")
    assert order(source) == ("needed target", "")


CERTAINLY_NOT = {
    "nothing follows": "import target",
    "only in words": "import target\n# needed\nx = 'needed'",
    "only in a function": "import target\ndef later():\n    import needed",
    "where an error is expected": "try:\n    import target\n    import needed\n"
    "except ImportError:\n    pass",
    "in a loop": "for _ in range(1):\n    import target\n    import needed",
    "of the same name elsewhere": "import target\nfrom json import decoder as needed",
}


@pytest.mark.parametrize("source", CERTAINLY_NOT.values(), ids=CERTAINLY_NOT)
def test_what_may_not_come_is_let_be(order, source):
    said, warned = order(source)
    assert said.split()[0] == "target"
    assert warned == ""


LIKELY = {
    "a variable is set": "import target\nimport os\nos.environ['X'] = '1'\nimport needed",
    "a call": "import target\nprint(end='')\nimport needed",
    "a decorator": "import target\nimport atexit\n@atexit.register\ndef f(): pass\nimport needed",
    "a module of the program": "import target\nimport settings\nimport needed",
    "the rest of a module of the program": "import indirect\nimport needed",
}


@pytest.mark.parametrize("source", LIKELY.values(), ids=LIKELY)
def test_what_the_statements_between_may_prepare_is_only_told(order, program, source):
    program.write("indirect.py", "import target\nprint(end='')\n")
    program.write("settings.py", "import os\nos.environ['SETTING'] = '1'\n")
    said, warned = order(source)
    assert said == "target needed"
    assert "[ORDER1] target was imported before needed." in warned
    assert f"needed is imported at main_part.py:{3 + source.count(chr(10))}" in warned.replace(
        f"{program.child.folder}/", ""
    )
    assert "run: export CUDAGUARD_RULES=+ORDER1" in warned


def test_source_that_was_edited_under_the_running_program_is_not_believed(order, program):
    program.write("worker.py", "def work():\n    import target\n")
    edit = "open('worker.py', 'w').write('def work():\\n    import target\\n    import needed\\n')"
    assert order(f"import worker\n{edit}\nworker.work()") == ("target", "")


def test_large_source_is_not_parsed(order):
    assert order("import target\n" + "#" * 200_000 + "\nimport needed") == ("target needed", "")


def test_state_of_warnings_is_not_touched(order):
    """Parsing warns of some sources; other threads set filters meanwhile."""
    source = """
import warnings
class Watched(list):
    def __setitem__(self, *_): raise AssertionError
    insert = __setitem__
warnings.catch_warnings = None
warnings.filters = Watched(warnings.filters)
import target
'\\d \\N{BULLET}'
import needed"""
    said, warned = order(source)
    assert said == "needed target"
    assert warned.count("invalid escape") <= 1  # Python's own


def test_mode_warn_tells_and_changes_nothing(order):
    said, warned = order("import target\nimport needed", mode="warn")
    assert said == "target needed"
    assert "[ORDER1] target was imported before needed." in warned


def test_a_disabled_rule_is_off(order):
    source = "cudaguard.install(disable=['ORDER1'])\nimport target\nimport needed"
    assert order(source) == ("target needed", "")


def test_all_that_a_rule_needs_must_come(order, program):
    both = {"needs": ("other", "needed")}
    assert order("import target\nimport needed", **both) == ("target needed", "")
    source = "import target\nimport needed\nimport other"
    assert order(source, **both) == ("other needed target", "")
    source = "import other\nimport target\nimport needed\n"  # no longer: byte code has the size
    assert order(source, **both) == ("other needed target", "")


def test_conditions_hold_here_too(order):
    source = "import target\nimport needed"
    assert order(source, dist=("not-installed",)) == ("target needed", "")


def test_it_is_told_as_any_repair(order):
    source = "import target\nimport needed\nprint(cudaguard.status().changes[-1])"
    said, _ = order(source)
    assert said.splitlines()[0] == "needed: imported before target by ORDER1 (stays)"


def test_a_source_that_cannot_be_read_tells_nothing(program):
    code = """
        cudaguard.install(rules=[rule(grade="opt-in")])
        exec(compile("import target\\nimport needed", "gone.py", "exec"))
        print(order())
    """
    assert program.output(code) == ["target needed"]


def test_a_cell_of_a_notebook_is_read(program):
    code = """
        import linecache
        cell = "import target\\nimport needed\\n"
        linecache.cache["<cell 1>"] = (len(cell), None, cell.splitlines(True), "<cell 1>")
        cudaguard.install(rules=[rule(grade="opt-in")])
        exec(compile(cell, "<cell 1>", "exec"))
        print(order())
    """
    assert program.output(code) == ["needed target"]
