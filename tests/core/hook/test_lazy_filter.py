"""The filter for lazy imports (PEP 810, Python 3.15).

No interpreter at hand has one: a stand-in plays the four functions of `sys` as the PEP describes
them. What is tested is our side of the agreement, not the interpreter's.
"""

from __future__ import annotations

import sys

import pytest

STAND_IN = """
import sys
class Interpreter:
    filter = None
    mode = "normal"
def set_filter(function): Interpreter.filter = function
sys.set_lazy_imports_filter = set_filter
sys.get_lazy_imports_filter = lambda: Interpreter.filter
sys.get_lazy_imports = lambda: Interpreter.mode
def may_be_lazy(name):
    # The interpreter passes three arguments by position.
    return Interpreter.filter is None or Interpreter.filter("__main__", name, None)
def ask(*names): print(*[may_be_lazy(name) for name in names])
import cudaguard
RULE = cudaguard.Rule("LOCAL1", ("target.part",), "test", needs=("prereq",))
"""
pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 15), reason="the interpreter has the functions of the stand-in"
)


def test_watched_roots_and_their_prerequisites_stay_eager(child):
    out = child.python(
        STAND_IN
        + """
cudaguard.install(rules=[RULE])
ask("target", "target.part", "target.other.deep", "prereq", "prereq.part")
ask("targets", "other", "other.target", "")
cudaguard.uninstall()
ask("target", "prereq")
print(Interpreter.filter)
"""
    ).stdout
    assert out.splitlines() == [
        "False False False False False",
        "True True True True",
        "True True",
        "None",
    ]


def test_previous_filter_is_asked_and_comes_back(child):
    out = child.python(
        STAND_IN
        + """
asked = []
def theirs(importer, name, fromlist):
    asked.append(name)
    return name != "theirs"
set_filter(theirs)
cudaguard.install(rules=[RULE])
ask("theirs", "other", "target")
print(asked)
cudaguard.uninstall()
print(Interpreter.filter is theirs)
"""
    ).stdout
    assert out.splitlines() == ["False True False", "['theirs', 'other']", "True"]


def test_later_filter_of_somebody_else_stays(child):
    """Ours is below it then, and must ask nobody for anything of its own."""
    out = child.python(
        STAND_IN
        + """
cudaguard.install(rules=[RULE])
ours = Interpreter.filter
def theirs(importer, name, fromlist):
    return name != "theirs" and ours(importer, name, fromlist)
set_filter(theirs)
cudaguard.uninstall()
print(Interpreter.filter is theirs)
ask("theirs", "target", "other")
cudaguard.install(rules=[RULE])
ask("theirs", "target", "other")
cudaguard.uninstall()
print(Interpreter.filter is theirs)
ask("theirs", "target", "other")
"""
    ).stdout
    assert out.splitlines() == [
        "True",
        "False True True",
        "False False True",
        "True",
        "False True True",
    ]


def test_second_install_sets_no_second_filter(child):
    out = child.python(
        STAND_IN
        + """
cudaguard.install(rules=[RULE])
ours = Interpreter.filter
cudaguard.install()
print(Interpreter.filter is ours)
cudaguard.uninstall()
print(Interpreter.filter)
"""
    ).stdout
    assert out.splitlines() == ["True", "None"]


def test_block_under_lazy_imports_is_told(child):
    """`with guard(): import x` may import x behind the block."""
    done = child.python(
        STAND_IN
        + """
Interpreter.mode = "all"
with cudaguard.guard(rules=[RULE]): pass
print([finding.id for finding in cudaguard.status().findings])
"""
    )
    assert done.stdout == "['CG808']\n"
    assert done.stderr.count("ImportOrderWarning") == 1


def test_nothing_is_set_where_there_is_no_such_function(child):
    out = child.python("""
        import sys
        before = set(dir(sys))
        import cudaguard
        with cudaguard.guard(): pass
        cudaguard.install()
        print(set(dir(sys)) - before, cudaguard.status().findings)
        print(any("lazy" in entry for entry in cudaguard.status().changes))
    """).stdout
    assert out.splitlines() == ["set() ()", "False"]
