"""docs/howto/arrays.md and docs/reference/consumers.md: the code runs, the tables are whole."""

from __future__ import annotations

import re

import pytest

from cudaguard.features.array_interface.interface import SPECIFICATION


@pytest.fixture(scope="module")
def text(root):
    return (root / "docs" / "howto" / "arrays.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reference(root):
    return (root / "docs" / "reference" / "consumers.md").read_text(encoding="utf-8")


def test_every_entry_of_the_specification_has_its_row(reference):
    fields = re.findall(r"^\| `(\w+)` \| .* \| since [0-3] \|$", reference, re.MULTILINE)
    assert fields == list(SPECIFICATION)


def test_code_runs_and_prints_what_is_shown(child, text):
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    shown, *_ = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    done = child.python("".join(blocks))
    assert done.stderr == ""
    assert " ".join(done.stdout.split()) == " ".join(shown.split())
