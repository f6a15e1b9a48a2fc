"""`lazy import` as Python 3.15 executes it; for older ones see `test_lazy_filter`."""

from __future__ import annotations

import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 15), reason="lazy import statements came with Python 3.15"
)

RULE = """
import sys
import cudaguard
RULE = cudaguard.Rule("LOCAL1", ("target", "absent", "unused"), "test", needs=("prereq",))
def order(): return [name for name in sys.modules if name in ("target", "prereq", "unused")]
"""
MODES = ["off", "observe", "warn", "fix", "strict"]


@pytest.fixture
def lazily(child):
    """Runs code beside two packages that a rule is about, and one that it needs."""
    for name in ("target", "unused", "prereq"):
        child.write(f"{name}.py", f"WHO = {name!r}\n")

    def lazily(code, **env):
        path = child.write("main.py", RULE + code)
        done = child.command(sys.executable, path, env=env)
        assert done.stderr == ""
        return done.stdout.splitlines()

    lazily.child = child

    return lazily


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "warn"])
def test_statement_imports_nothing_and_a_missing_package_fails_where_it_is_used(lazily, mode):
    code = f"""
cudaguard.install({mode!r}, rules=[RULE])
lazy import absent
lazy import unused
lazy import target
print(order())
try:
    absent.anything
except ModuleNotFoundError as error:
    print(error)
print(target.WHO, order())
"""
    first = ["prereq", "target"] if mode in ("fix", "strict") else ["target"]
    assert lazily(code) == ["[]", "No module named 'absent'", f"target {first}"]


def test_watched_module_is_imported_inside_a_block(lazily):
    code = """
with cudaguard.guard(rules=[RULE]):
    lazy import absent
    lazy import target
print(order(), sys.get_lazy_imports_filter())
lazy import unused
print(order())
"""
    assert lazily(code) == ["['prereq', 'target'] None", "['prereq', 'target']"]


def test_all_imports_lazy(lazily):
    code = "cudaguard.install(rules=[RULE])\nimport target, unused\nprint(order())\n"
    code += "print(target.WHO, order())"
    lines = lazily(code, PYTHON_LAZY_IMPORTS="all")
    assert lines == ["[]", "target ['prereq', 'target']"]


# --- what is told ---------------------------------------------------------------------------------

TELL = """
def tell():
    for finding in cudaguard.status().findings: print(finding.id, *finding.evidence, sep=" | ")
"""
OBSERVE = "cudaguard.install('observe', rules=[RULE])\n"
LINE = "`lazy import` of target at {0}/main.py:{1}, first used at {0}/{2}"


@pytest.fixture
def told(lazily):
    """As `lazily`; returns ids and evidence of what was found, and where the folder is."""

    def told(code, **env):
        return lazily(TELL + code + "\ntell()\n", **env), lazily.child.folder

    return told


def line_of(code: str, statement: str) -> int:
    """Return the line of a statement in the program that `told` runs."""
    return (RULE + TELL + code).split("\n").index(statement) + 1


@pytest.mark.parametrize(
    "statement",
    [
        "lazy import target", "lazy import target as name", "lazy from target import WHO",
        "__lazy_modules__ = ['target']; import target",
    ],
)  # fmt: skip
def test_finding_names_the_statement_and_the_first_use(told, statement):
    used = statement.split()[-1]
    code = f"{OBSERVE}{statement}\ndef use():\n    return {used}\nuse()\n"
    lines, folder = told(code)
    use = f"main.py:{line_of(code, f'    return {used}')}"
    told_of = LINE.format(folder, line_of(code, statement), use)
    assert lines == [f"LOCAL1 | imported at {folder}/{use} | {told_of}"]


def test_import_that_is_not_lazy_names_no_statement(told):
    """Even beside a lazy one of the same module that nothing has used yet."""
    code = f"{OBSERVE}lazy import target as later\ndef use():\n    import target\nuse()\n"
    lines, folder = told(code)
    assert lines == [f"LOCAL1 | imported at {folder}/main.py:{line_of(code, '    import target')}"]
    call = "__import__('target')"
    code = f"{OBSERVE}lazy import target as later\n{call}\n"
    lines, folder = told(code)
    assert lines == [f"LOCAL1 | imported at {folder}/main.py:{line_of(code, call)}"]


@pytest.mark.parametrize(
    "block", ["cudaguard.guard('observe', rules=[RULE])", "cudaguard.install('observe')"]
)
def test_first_use_after_the_block_is_told_with_the_line(told, block):
    code = f"with {block}:\n    lazy import target\ntarget.WHO\n"
    lines, folder = told(code)
    line = line_of(code, "    lazy import target")
    assert lines == [f"CG808 | `lazy import` at {folder}/main.py:{line}"]


def test_block_with_lazy_imports_of_all_modules(told):
    """What is not watched itself may import what is."""
    code = "with cudaguard.guard('fix', rules=[RULE]):\n    import prereq, json, absent, target\n"
    lines, _ = told(code, PYTHON_LAZY_IMPORTS="all")
    assert lines == []  # the rule had the prerequisite imported, with the watched module
    code = "with cudaguard.guard('observe'):\n    import prereq, json, absent\n"
    lines, folder = told(code, PYTHON_LAZY_IMPORTS="all")
    line = line_of(code, "    import prereq, json, absent")
    assert lines == [f"CG808 | `lazy import` at {folder}/main.py:{line}"]


@pytest.mark.parametrize(
    "code",
    [
        "lazy import target\nwith cudaguard.guard('observe', rules=[RULE]): pass",
        "with cudaguard.guard('fix', rules=[RULE]):\n    lazy import target",
        "with cudaguard.guard('observe'):\n    lazy import prereq\n    prereq.WHO",
        "with cudaguard.guard('observe'):\n    lazy import absent, json.tool",
        "with cudaguard.guard('observe'):\n    lazy from sys import path",
        "cudaguard.install('fix')\nwith cudaguard.guard():\n    lazy import target",
        "with cudaguard.guard('observe'), cudaguard.guard():\n    lazy import prereq; prereq.WHO",
    ],
    ids=["before", "eager", "used", "harmless", "part", "outside", "nested"],
)  # fmt: skip
def test_block_that_leaves_nothing_to_be_imported_says_nothing(told, code):
    lines, _ = told(code + "\n")
    assert lines == []
