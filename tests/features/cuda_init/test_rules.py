"""Rules that set a variable before an import, or put another module in place of that one."""

from __future__ import annotations

import pytest

# --- defaults of variables, and modules in the place of others, in all modes ----------------------

SHOW = """
import os
print(os.environ.get("GRAB"), target.__name__, target.value)
import importlib, sys
assert sys.modules["target"] is importlib.import_module("target") is target
"""
STATUS = """
s = cudaguard.status()
print([f.id for f in s.findings], [t for t in s.changes if "stays" in t])
"""


@pytest.fixture
def run(child, root):
    """Runs a program with a rule for `target`, and returns its lines and its stderr."""
    child.write(
        "target.py", "import os\nvalue = os.environ.get('GRAB', 'everything')\nprint('ran')"
    )
    child.write("other.py", "value = 'shared'\nprint('other ran')")
    child.write("pkg/__init__.py", "")
    child.write("pkg/own.py", "value = 'own'")
    child.write("pkg/shared.py", "value = 'shared'")

    def run(code, actions, mode="fix", enable=True, grade="opt-in", watch="target", **env):
        # What replaces a module is no verb: rules of ours alone may ask for it.
        id = "CG013" if "replace_module" in actions[0] else "L"
        enable = [id] if enable else []
        rule = (
            f"cudaguard.Rule({id!r}, ({watch!r},), 'it grabs', actions={actions!r},"
            f" grade={grade!r})"
        )
        start = f"import cudaguard\ncudaguard.install({mode!r}, rules=[{rule}], enable={enable})\n"
        done = child.python(start + code, env={"PYTHONPATH": str(root), **env})
        return done.stdout.splitlines(), done.stderr

    return run


ENV = ({"set_env": "GRAB", "value": "little"},)
OTHER = ({"replace_module": "other"},)


def test_default_is_set_before_the_module_is_imported(run):
    lines, errors = run("import target" + SHOW + STATUS, ENV)
    assert lines == [
        "ran",
        "little target little",
        "[] ['GRAB=little: set before target by L (stays)']",
    ]
    assert errors == ""


def test_what_the_program_has_set_stays(run):
    lines, _ = run("import target" + SHOW + STATUS, ENV, GRAB="half")
    assert lines == ["ran", "half target half", "[] []"]
    lines, _ = run("import target" + SHOW + STATUS, ENV, GRAB="")
    assert lines == ["ran", " target ", "[] []"]


def test_without_the_id_nothing_is_set(run):
    assert run("import target" + SHOW, ENV, enable=False)[0] == ["ran", "None target everything"]


@pytest.mark.parametrize(("mode", "told"), [("warn", True), ("observe", False)])
def test_modes_that_only_tell(run, mode, told):
    lines, errors = run("import target" + SHOW + STATUS, ENV, mode=mode)
    assert lines == ["ran", "None target everything", "['L'] []"]
    assert ("target was imported without GRAB" in errors) == told
    assert ("set GRAB=little before the import" in errors) == told


def test_another_module_stands_in(run):
    lines, errors = run("import target" + SHOW + STATUS, OTHER)
    assert lines == [
        "other ran",
        "None other shared",
        "[] ['target: replaced with other by CG013 (stays)']",
    ]
    assert errors == ""


def test_stand_in_that_is_not_installed_or_fails(run, child):
    lines, errors = run("import target" + SHOW, ({"replace_module": "no_such_module"},))
    assert (lines, errors) == (["ran", "None target everything"], "")
    child.write("bad.py", "raise OSError('broken')")
    lines, errors = run("import target" + SHOW, ({"replace_module": "bad"},))
    assert lines == ["ran", "None target everything"]
    assert "bad could not be imported before target, as rule CG013 requires" in errors


def test_modes_that_repair_nothing_substitute_nothing(run):
    for mode in ("warn", "observe"):
        assert run("import target" + SHOW, OTHER, mode=mode)[0] == ["ran", "None target everything"]
