"""A file of rules wakes the guard when one of its modules is imported, or at once."""

from __future__ import annotations

import random
import sys

import pytest

from cudaguard.core.table import table
from cudaguard.features import _index
from cudaguard.kernel import kernel, rules_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RULES = """
# of this site
[[rules]]
id = "LOCAL001"
watch = ["one", "two.part"]
actions = [{ set_env = "RULES_ONE", value = "1" }]
why = "one reads it."

[[rules]]
id = "LOCAL002"
watch = ["three"]
when = { dists = { numpy = ">=1" } }
why = "three = one # more"
"""
PROGRAM = """
import os, sys, cudaguard
cudaguard.install()
os.chdir("/")
print("cudaguard.api" in sys.modules)
import one
print(os.environ.get("RULES_ONE"), cudaguard.status().woken_by)
"""
READ_AT_ONCE = {
    "a setting": (RULES, 'mode = "fix"\n' + RULES),
    "no rule": (RULES, "# of this site\n"),
    "no text": ("of this", "\ud8ff"),
    "a list of several lines": ('["one", ', '["one",\n'),
    "a text of several lines": ('"one reads it."', '"""one\nreads it."""'),
    "another quote": ('"one"', "'one'"),
    "an escape": ('"one"', r'"\u006fne"'),
    "a table of its own": ("when = {", "[rules.when]\nenv = {"),
    "a key that is no rule's": ("when", "where"),
    "a key twice": ("when", "why"),
    "a key that is missing": ("why", "title"),
    "a reserved id": ("LOCAL001", "cg001"),
    "no module": ("two.part", "two-part"),
    "a text that does not end": ("it.", 'it."'),
    "a verb for extensions": ("set_env", "provide_libraries"),
}


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Returns what is watched for a text."""

    def names(text: str) -> list[str]:
        path = tmp_path / "cudaguard.toml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        monkeypatch.setenv("CUDAGUARD_CONFIG", str(path))
        return rules_file.names()

    monkeypatch.setattr(kernel, "rules_file", "")
    return names


@pytest.mark.parametrize("file", ["rules.toml", "absent.toml", ""])
def test_rule_acts_when_its_module_is_imported(child, file):
    child.write("rules.toml", RULES)
    child.write("one.py", "")
    done = child.python(PROGRAM, env={"CUDAGUARD_CONFIG": file, "PYTHONPATH": str(child.folder)})
    acts = ["False", "1 import of one"]
    told = ["True", "None environment variable CUDAGUARD_CONFIG"]
    assert done.stdout.splitlines() == (acts if file == "rules.toml" else told)
    assert ("absent.toml: cannot read" in done.stderr) is (file == "absent.toml")


@pytest.mark.parametrize(("old", "new"), READ_AT_ONCE.values(), ids=list(READ_AT_ONCE))
def test_what_is_more_than_rules_is_read_at_once(names, old, new):
    assert names(RULES) == ["one", "two.part", "three"]
    assert old in RULES
    assert names(RULES.replace(old, new, 1)) == []


def test_names_are_those_of_toml(names):
    chance = random.Random(1)
    pieces = [*'"[]{},#=\n\r', "'", "watch", '"one"', "[[rules]]"]
    seen = 0
    for _ in range(1000):
        start = chance.randrange(len(RULES))
        text = RULES[:start] + chance.choice(pieces) + RULES[start + chance.randrange(3) :]
        found = names(text)
        try:
            rules = tomllib.loads(text)["rules"]
        except tomllib.TOMLDecodeError:
            continue  # told when the guard reads it
        if found:
            seen += 1
            assert found == [name for rule in rules for name in rule["watch"]]
    assert seen > 30


def test_verbs_that_act_elsewhere_are_known():
    public = {verb.name for entry in _index.TABLES for verb in table.resolve(entry)}
    asleep = {"needing", "first", "choosing", "lacking"}  # not at an import of a watched module
    found = {verb for verb in public if asleep & _index.VERBS[verb].keys()}
    assert found == {rules_file._ELSEWHERE}
