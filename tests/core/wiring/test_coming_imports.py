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
    program.write("indirect.py", "try:\n    import target\nexcept ImportError:\n    pass\n")
    assert order(source, mode="observe") == ("target needed", "")
    assert order(source) == ("needed target", "")


CERTAINLY_NOT = {
    "nothing follows": "import target",
    "something else between": "import target\nimport json\nx = 1\nimport needed",
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
    source = "import other\nimport target\nimport needed"
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
