"""The words of ``%load_ext cudaguard``, and the table of findings."""

from __future__ import annotations

from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

import cudaguard
from cudaguard.core.lifecycle import activation
from cudaguard.model import Finding, Status
from cudaguard.tools.ipython import Session
from cudaguard.tools.notebook_messages import START_AGAIN, loaded
from cudaguard.tools.notebook_table import COLUMNS, NotebookTable, of_status


def test_ipython_finds_the_extension_by_its_names():
    for name in ("load_ipython_extension", "unload_ipython_extension"):
        assert callable(getattr(cudaguard, name))
        assert name not in cudaguard.__all__


def test_modules_that_missed_nothing_need_no_new_start():
    assert loaded("fix", {"torch": []}, []).splitlines()[1:] == ["  nothing missed: torch"]


def test_all_parts_in_order():
    text = loaded("warn", {"a": ["R1, first", "R2, second"], "b": []}, ["names hidden"])
    assert text.splitlines() == [
        "cudaguard is on in this session, mode warn. Imported before it: a, b.",
        "  too late for a: R1, first",
        "  too late for a: R2, second",
        "  repaired afterwards: names hidden",
        "  nothing missed: b",
        *START_AGAIN.splitlines(),
    ]


# --- the table ------------------------------------------------------------------------------------

FINDING = Finding(
    "CG001",
    "decord gives its zlib to others.",
    evidence=("libdecord.so", "imported at train.py:1"),
    consequence="cv2 reads nothing.",
    remedy="import cudaguard first",
    command="export CUDAGUARD=fix",
    links=("https://github.com/dmlc/decord/issues/293", "https://example.org"),
)


class Cells(HTMLParser):
    """Reads a table back; fails on tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.tags, self.links = [], [], set(), []
        self.above = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag in ("br", "wbr"):
            self.handle_data("\n" if tag == "br" else "")
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "a":
            self.links.append(dict(attributes)["href"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data
        else:
            self.above += data


def test_table_has_the_words_of_the_finding():
    table = NotebookTable([FINDING])
    assert repr(table) == str(FINDING)
    cells = Cells(table._repr_html_())
    head, row = cells.rows
    assert tuple(head) == COLUMNS
    unfolded = "evidencelibdecord.so\nimported at train.py:1"
    assert row == [
        "CG001\nwarning",
        f"{FINDING.what}\nconsequence: cv2 reads nothing.{unfolded}",
        "import cudaguard first\nsee: https://github.com/dmlc/decord/issues/293",
        "export CUDAGUARD=fix",
    ]
    assert cells.links == [FINDING.links[0]]
    for line in str(FINDING).splitlines():  # the text form says nothing more
        words = line.strip().removeprefix("[CG001] ")
        for label in ("remedy: ", "run: ", "evidence: "):
            words = words.removeprefix(label)
        assert any(words in cell for cell in row), words


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        "\"><img src=x onerror='alert(1)'>",
        "</td></tr></table><h1>",
        "&lt;b&gt; & \x1b[31m\x07\u202e",
        "\n</code>",
    ],
)
def test_what_is_from_outside_is_escaped(evil):
    fields = ("what", "consequence", "remedy", "command")
    finding = Finding(evil, **dict.fromkeys(fields, evil), evidence=(evil,), links=(evil,))
    html = NotebookTable([finding], [evil])._repr_html_()
    cells = Cells(html)
    assert cells.tags <= {"div", "br", "table", "thead", "tbody", "tr", "th", "td", "b", "code",
                          "details", "summary"}  # fmt: skip
    assert len(cells.rows) == 2
    assert html.isprintable()
    assert "onerror='" not in html


def test_column_without_a_command_is_left_out():
    cells = Cells(NotebookTable([FINDING.replace(command="", evidence=())])._repr_html_())
    assert [len(row) for row in cells.rows] == [3, 3]
    assert "details" not in cells.tags


def test_links_that_run_code_are_no_links():
    cells = Cells(NotebookTable([FINDING.replace(links=("javascript:alert(1)",))])._repr_html_())
    assert cells.links == []
    assert "javascript:alert(1)" in cells.rows[1][2]


def test_formulas_are_not_typeset():
    """Jupyter's MathJax reads HTML outputs, too."""
    html = NotebookTable([FINDING.replace(what="$HOME/a and $HOME/b")])._repr_html_()
    assert "$" not in html
    assert "$HOME/a and $HOME/b" in Cells(html).rows[1][1]


def test_status_stands_above_the_table():
    status = Status("fix", findings=(FINDING,), changes=("a finder was put in", "<b>"))
    assert repr(of_status(status)) == str(status)
    cells = Cells(of_status(status)._repr_html_())
    assert cells.above.splitlines() == [
        "cudaguard: mode fix, 0 rules in force", "changed: a finder was put in", "changed: <b>",
    ]  # fmt: skip
    assert len(cells.rows) == 2
    assert "table" not in Cells(of_status(Status("off"))._repr_html_()).tags


# --- when it is shown -----------------------------------------------------------------------------


class Shell:
    """What of IPython's shell the extension uses."""

    def __init__(self, *, kernel):
        self.kernel = object() if kernel else None
        self.called, self.shown = [], []
        self.events = SimpleNamespace(
            register=lambda event, call: self.called.append((event, call)),
            unregister=lambda event, call: self.called.remove((event, call)),
        )
        self.display_formatter = SimpleNamespace(format=lambda shown: (shown, {}))
        self.display_pub = SimpleNamespace(publish=lambda shown, _: self.shown.append(repr(shown)))

    def run_cell(self, *findings):
        activation.core.reporter.channel.findings.extend(findings)
        for event, call in self.called:
            assert event == "post_run_cell"
            call(object())


@pytest.fixture(autouse=True)
def no_findings(monkeypatch):
    monkeypatch.setattr(activation.core.reporter.channel, "findings", [])


def test_each_cell_shows_what_is_new_and_no_information():
    shell = Shell(kernel=True)
    session = Session(shell)
    shell.run_cell()
    shell.run_cell(FINDING.replace(severity="info"))
    assert shell.shown == []
    shell.run_cell(FINDING)
    shell.run_cell()
    assert shell.shown == [str(FINDING)]
    session.leave()
    shell.run_cell(FINDING)
    assert len(shell.shown) == 1


def test_terminal_has_the_warnings_and_no_table():
    shell = Shell(kernel=False)
    session = Session(shell)
    shell.run_cell(FINDING)
    assert shell.shown == []
    session.show_status("")
    assert shell.shown[0].startswith("cudaguard: mode off")
    session.leave()
