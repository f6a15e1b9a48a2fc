"""How text is laid out: wrapped between words, never inside of what is copied or searched for."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaguard.core.findings import Finding
from cudaguard.files.layout import MOST, Document, Page, has_color, width_of
from cudaguard.files.text import RULE_LINE
from cudaguard.tools.common import Progress


class Screen(io.StringIO):
    """A stream that is a terminal, and does not tell how wide."""

    def isatty(self):
        return True


@pytest.fixture
def page(monkeypatch):
    """Returns a page for a terminal of so many columns."""

    def page(wide, **options):
        monkeypatch.setenv("COLUMNS", str(wide))
        monkeypatch.setenv("NO_COLOR", "1")
        return Page(Screen(), **options)

    return page


@pytest.mark.parametrize(
    ("said", "width"),
    [("", 80), ("60", 60), ("7", 40), ("500", 120), ("-3", 80), ("many", 80), ("9" * 9999, 80)],
)
def test_width_of_a_terminal(monkeypatch, said, width):
    monkeypatch.setenv("COLUMNS", said)
    assert width_of(Screen()) == width
    assert width_of(io.StringIO()) == width_of(Document()) == width_of(None) == 0


@pytest.mark.parametrize(
    "kept",
    ["/a/" + "b" * 60, "`import a, b and more`", '"/a b/c d.py",', "a.BError: no such thing (x) y"],
)
def test_what_stays_in_one_line(page, kept):
    page = page(40)
    page.add(f"some words that come before it: {kept}")
    assert kept in str(page)
    assert len(str(page).splitlines()) == 2


@given(
    st.text(alphabet='ab `"(:', max_size=300),
    st.integers(40, 120),
    st.integers(0, 12),
    st.text(alphabet="xy :", max_size=20),
)
def test_no_word_is_lost_and_no_line_too_long(text, wide, indent, lead):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(wide))
        patch.setenv("NO_COLOR", "1")
        page = Page(Screen())
        page.add(text, indent, lead=lead)
    shown = str(page)
    assert "".join(shown.split()) == "".join(f"{lead}{text}".split())
    for line in shown.splitlines():
        rest = line.strip().removeprefix(lead.strip()).strip()
        assert len(line.rstrip()) <= wide or re.search(r"^\S*$|`.*`|\".*\"", rest)


def test_lines_hang_below_their_lead(page):
    page = page(40)
    page.add("one two three four five six seven eight nine", 2, lead="because: ")
    page.labeled("run", "a command that is longer than the line is wide, by far", 2)
    assert str(page).splitlines() == [
        "  because: one two three four five six",
        "    seven eight nine",
        "  run: a command that is longer than the line is wide, by far",
    ]


def test_pipes_get_whole_lines():
    page = Page(io.StringIO())
    page.add("word " * 100, 2, lead="why: ")
    assert len(str(page).splitlines()) == 1


def test_long_lists_are_cut_and_shown_on_request():
    items = [f"fact {number}" for number in range(30)]
    for count, shown, more in ((5, 5, ""), (6, 6, ""), (7, MOST, "and 2 more (--verbose)"),
                               (30, MOST, "and 25 more (--verbose)")):  # fmt: skip
        page = Page()
        page.items("evidence", items[:count], 2)
        lines = str(page).splitlines()
        assert lines[0] == "  evidence: fact 0"
        rest = items[1:shown] + ([more] if more else [])
        assert lines[1:] == [f"            {item}" for item in rest]
        assert page.is_cut is bool(more)
    page = Page(verbose=True)
    page.items("evidence", items, 2)
    assert len(str(page).splitlines()) == 30
    assert not page.is_cut


def test_finding_has_the_words_that_it_has_everywhere():
    remedy = f"add{RULE_LINE}[[rules]]{RULE_LINE}id = 1"
    finding = Finding("CG901", "what\x1b[2J", evidence=("a", "b"), consequence="then",
                      command="run it", remedy=remedy, links=("https://e.org",))  # fmt: skip
    page = Page()
    page.finding(finding.to_dict(), "[CG901] ")
    assert str(page) == str(finding)
    page = Page()
    page.finding(finding.to_dict(), "found: ", parts=("run",))
    assert str(page) == "found: what\\x1b[2J\n  run: run it"


def test_finding_in_color(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    finding = Finding("CG901", "It broke.", evidence=("in /opt/a/b.so",), command="ls /opt/a")
    page = Page(Screen())
    page.finding(finding.to_dict(), "[CG901] ", mark="yellow")
    assert str(page).splitlines() == [
        "\x1b[33m[CG901]\x1b[0m \x1b[1mIt broke.\x1b[0m",
        "  because: in \x1b[2m/opt/a/b.so\x1b[0m",
        "  \x1b[36mrun: ls /opt/a\x1b[0m",
    ]


@pytest.mark.parametrize(
    ("what", "headline", "below"),
    [
        ("short: and whole.", "short: and whole.", []),
        (f"It is not found: {'why ' * 30}", "It is not found.", [f"  because: {'why ' * 30}"[:-1]]),
        (f"The program died. {'Then ' * 24}", "The program died.", [f"  {'Then ' * 24}"[:-1]]),
        (f"'a quote: of {'words ' * 20}'", None, []),
    ],
)
def test_long_text_is_split_where_its_reason_begins(what, headline, below):
    assert str(Finding("X1", what)).splitlines() == [f"[X1] {headline or what}", *below]


# --- color and progress ---------------------------------------------------------------------------

CLOSED = io.StringIO()
CLOSED.close()


@pytest.mark.parametrize(
    ("stream", "environ", "expected"),
    [
        (Screen(), {}, True),
        (Screen(), {"TERM": "dumb"}, False),
        (Screen(), {"NO_COLOR": "1"}, False),
        (Screen(), {"NO_COLOR": ""}, True),
        (Screen(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (Screen(), {"FORCE_COLOR": "0"}, False),
        (io.StringIO(), {}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": ""}, False),
        (CLOSED, {}, False),
        (None, {}, False),  # pythonw, or a closed descriptor
    ],
)
def test_color(monkeypatch, stream, environ, expected):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert has_color(stream) is expected


@pytest.mark.parametrize("log", [io.StringIO, Screen])
def test_progress_in_a_log_and_on_a_dumb_terminal_tells_what_has_ended(monkeypatch, log):
    monkeypatch.setenv("TERM", "dumb")
    stream = log()
    progress = Progress(stream)
    progress.running("one ...")
    progress.finished("one: works")
    progress.clear()
    assert stream.getvalue() == "one: works\n"


def test_progress_on_a_terminal_rewrites_one_line(monkeypatch):
    monkeypatch.delenv("TERM", raising=False)
    stream = Screen()
    progress = Progress(stream)
    progress.running("long line")
    progress.finished("short")
    progress.clear()
    progress.running("x" * 500)
    assert stream.getvalue().startswith("\rlong line\rshort    \r     \r\rxxx")
    assert len(stream.getvalue().rpartition("\r")[2]) < 80
