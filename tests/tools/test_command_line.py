"""What the commands share: color, progress."""

from __future__ import annotations

import io

import pytest

from cudaguard.tools.common import Progress
from cudaguard.tools.layout import has_color


class Terminal(io.StringIO):
    def isatty(self):
        return True


CLOSED = io.StringIO()
CLOSED.close()


@pytest.mark.parametrize(
    ("stream", "environ", "expected"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (Terminal(), {"FORCE_COLOR": "0"}, False),
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


@pytest.mark.parametrize("log", [io.StringIO, Terminal])
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
    stream = Terminal()
    progress = Progress(stream)
    progress.running("long line")
    progress.finished("short")
    progress.clear()
    progress.running("x" * 500)
    assert stream.getvalue().startswith("\rlong line\rshort    \r     \r\rxxx")
    assert len(stream.getvalue().rpartition("\r")[2]) < 80
