"""docs/troubleshooting.md and its neighbors: each message has one entry, each id is known."""

from __future__ import annotations

import re

import pytest

from cudaguard.core.explain import known_errors
from cudaguard.features._index import IDS as DETECTORS
from cudaguard.tools.doctor.checks import CHECKS
from cudaguard.tools.explain import RULES

from .documents import ERRORS


@pytest.fixture
def guide(root):
    """Returns the text of a page, and its code blocks of one language."""

    def guide(name, language=""):
        text = (root / "docs" / name).read_text(encoding="utf-8")
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        return blocks if language else text

    return guide


def entries(text):
    """The verbatim texts of each message of the page, by its id."""
    part = text.partition("<!-- errors: ")[2].partition("<!-- end of errors -->")[0]
    found = {}
    for entry in re.split(r"^#### ", part, flags=re.MULTILINE)[1:]:
        (id,) = re.findall(r"^\*See:\* \[[^]]*\]\(\S+\); (CG\d{3})", entry, re.MULTILINE)
        assert id not in found
        head, _, rest = entry.partition("\n")
        block = re.findall(r"^```text\n(.*?)^```$", rest, re.DOTALL | re.MULTILINE)
        shown = [head, *re.findall(r"^- (.*)$", rest, re.MULTILINE)]
        found[id] = [*(text.strip("`") for text in shown), *block]
    return found


def test_each_message_has_one_entry_in_troubleshooting(guide):
    """What a person pastes into a search of the page is found, once."""
    told = entries(guide("troubleshooting.md"))
    assert list(told)
    for known in known_errors():
        for example in ERRORS[known.id]:
            holders = [
                id for id, texts in told.items() if any(example.strip() in one for one in texts)
            ]
            assert holders == [known.id], example
    assert set(told) == {known.id for known in known_errors()}


def test_entries_have_a_cause_a_fix_and_a_page(guide):
    text = guide("troubleshooting.md")
    assert text.count("\n*Fix:* ") == len(entries(text)) == text.count("\n*See:* [")
    assert "{" not in text.partition("<!-- errors: ")[2]


def test_each_warning_of_cudaguard_has_one_row_or_entry(guide):
    text = guide("troubleshooting.md")
    rows = re.findall(r"^\| `\[(CG\d{3})\]` \|", text, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert {*rows, *entries(text)} == set(DETECTORS) - set(CHECKS), "a Kind has a `page`"
    assert not set(rows) & set(entries(text))


def test_ids_of_troubleshooting_are_known(guide):
    known = {rule.id for rule in RULES} | {*DETECTORS, *CHECKS}
    assert set(re.findall(r"CG\d\d\d", guide("troubleshooting.md"))) <= known


def test_page_about_forks_quotes_the_error(guide):
    assert "Cannot re-initialize CUDA in forked subprocess" in guide("howto/fork.md")
