"""The filter for lazy imports (PEP 810, Python 3.15).

A stand-in plays three functions of `sys` as the PEP describes them, on every Python. What is tested
is our side of the agreement.
"""

from __future__ import annotations

import pytest

STAND_IN = """
import sys
class Interpreter:
    filter = None
def set_filter(function): Interpreter.filter = function
sys.set_lazy_imports_filter = set_filter
sys.get_lazy_imports_filter = lambda: Interpreter.filter
def may_be_lazy(name):
    # The interpreter passes three arguments by position.
    return Interpreter.filter is None or Interpreter.filter("__main__", name, None)
def ask(*names): print(*[may_be_lazy(name) for name in names])
import cudaguard
RULE = cudaguard.Rule("LOCAL1", ("target.part",), "test", needs=("prereq",))
"""


@pytest.fixture
def ask(child):
    """Runs code in a folder that has the watched package, and what it needs."""
    for name in ("target", "prereq"):
        child.write(f"{name}/__init__.py", "")

    def ask(code):
        done = child.python(STAND_IN + code)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return ask


BLOCK = "with cudaguard.guard({mode!r}, rules=[RULE]):\n    "


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_watched_roots_stay_eager_inside_a_block(ask, mode):
    names = "ask('target', 'target.part', 'targets', 'other.target', '', 'prereq')"
    lines = ask(BLOCK.format(mode=mode) + names + "\nask('target')\nprint(Interpreter.filter)")
    # What must come first comes with the watched module, and need not be eager itself.
    assert lines == ["False False True True True True", "True", "None"]


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_no_import_is_made_eager_where_nothing_may_be_changed(ask, mode):
    assert ask(BLOCK.format(mode=mode) + "print(Interpreter.filter)") == ["None"]


def test_under_install_the_first_use_is_guarded_as_well(ask):
    code = "cudaguard.install(rules=[RULE])\nprint(Interpreter.filter)\n"
    assert ask(code + BLOCK.format(mode="fix") + "print(Interpreter.filter)") == ["None", "None"]
    code = BLOCK.format(mode="fix") + "cudaguard.install()\n    print(Interpreter.filter)"
    assert ask(code) == ["None"]


def test_package_that_is_not_installed_is_left_to_fail_where_it_is_used(ask):
    """And `lazy import torch` in a program that copes without torch does not fail at all."""
    code = "RULE = RULE.replace(watch=('absent',))\n"
    assert ask(code + BLOCK.format(mode="fix") + "ask('absent', 'absent.part')") == ["True True"]


def test_previous_filter_is_asked_and_comes_back(ask):
    lines = ask(
        """
asked = []
def theirs(importer, name, fromlist):
    asked.append(name)
    return name != "theirs"
set_filter(theirs)
with cudaguard.guard(rules=[RULE]):
    ask("theirs", "other", "target")
print(asked)
print(Interpreter.filter is theirs)
"""
    )
    assert lines == ["False True False", "['theirs', 'other']", "True"]


def test_later_filter_of_somebody_else_stays(ask):
    """Ours is below it then, and must ask nobody for anything of its own."""
    lines = ask(
        """
with cudaguard.guard(rules=[RULE]):
    ours = Interpreter.filter
    def theirs(importer, name, fromlist):
        return name != "theirs" and ours(importer, name, fromlist)
    set_filter(theirs)
print(Interpreter.filter is theirs)
ask("theirs", "target", "other")
with cudaguard.guard(rules=[RULE]):
    ask("theirs", "target", "other")
print(Interpreter.filter is theirs)
ask("theirs", "target", "other")
"""
    )
    assert lines == ["True", "False True True", "False False True", "True", "False True True"]


def test_nothing_is_set_where_there_is_no_such_function(child):
    out = child.python("""
        import sys
        for name in ("set_lazy_imports_filter", "get_lazy_imports_filter"):
            vars(sys).pop(name, None)  # as in Pythons before 3.15
        before = set(dir(sys))
        import cudaguard
        with cudaguard.guard(): pass
        cudaguard.install()
        print(set(dir(sys)) - before, cudaguard.status().findings)
        print(any("lazy" in entry for entry in cudaguard.status().changes))
    """).stdout
    assert out.splitlines() == ["set() ()", "False"]
