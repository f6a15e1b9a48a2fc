"""What a line of the user's own source calls, as `cudaguard run` reads it."""

from __future__ import annotations

import pytest

from cudaguard.tools.run.own_code import OwnSource, is_own, is_standard

HEAD = """\
import ctypes, os, threading, queue
import ctypes as ct, torch
from ctypes import CDLL, string_at
lib = CDLL("./x.so")
other = torch.ops
twice = CDLL("x")
twice = torch.ops
for each in (1, 2): pass
lock, event = threading.Lock(), threading.Event()
class Own:
    def __init__(self, given):
        self.held, self.given = threading.RLock(), given
    def helper(self): pass
def plain(): pass
"""


@pytest.fixture
def last_line(tmp_path):
    """Returns the source of a file whose last line is given, and the number of that line."""

    def last_line(text):
        path = tmp_path / "own.py"
        path.write_text(HEAD + text, encoding="utf-8")
        return OwnSource(str(path)), (HEAD + text).count("\n") + 1

    return last_line


@pytest.mark.parametrize(
    "text",
    [
        "lib.boom()", "ctypes.string_at(0)", "ct.memset(0, 0, 1)", "string_at(0)", "os.abort()",
        "print(lib.boom(plain()))", "if lib.boom() > len('x'): pass",
    ],
)  # fmt: skip
def test_calls_of_its_own(last_line, text):
    source, line = last_line(text)
    assert source.calls_only_own(line)


@pytest.mark.parametrize(
    "text",
    [
        "other.boom()", "torch.ops.boom()", "lib.boom(torch.zeros(1))", "CDLL('y')", "twice.boom()",
        "ctypes.cdll.LoadLibrary('y')", "CDLL('y').boom()", "each.boom()", "unknown()", "x = 1",
        "print('x')", "plain()", "(lib.boom() if 1 else unknown())", "lib.boom(key=other.f())",
        "",
    ],
)  # fmt: skip
def test_calls_of_which_that_is_not_certain(last_line, text):
    source, line = last_line(text)
    assert not source.calls_only_own(line)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("with lock: pass", True),
        ("lock.acquire()", True),
        ("event.wait(3)", True),
        ("threading.Thread(target=plain).join()", True),
        ("def f(self):\n    with self.held: pass", True),
        ("def f(self):\n    with self.given: pass", False),
        ("with torch.no_grad(): pass", False),
        ("with lock, other.lock: pass", False),
        ("plain()", False),
        ("pass", False),
    ],
)
def test_waits_for_lock(last_line, text, expected):
    source, line = last_line(text)
    assert source.waits_for_lock(line) is expected


def test_source_that_cannot_be_read(tmp_path):
    for content in (b"\xff\0", b"def (:", None):
        path = tmp_path / "broken.py"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        source = OwnSource(str(path))
        assert not source.calls_only_own(1)
        assert source.text(99) == ""


def test_whose_a_file_is(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("")
    installed = tmp_path / "site-packages" / "x.py"
    installed.parent.mkdir()
    installed.write_text("")
    assert is_own(str(own))
    assert not is_own(str(installed))
    assert not is_own("<frozen runpy>")
    assert not is_own(threading_file())
    assert is_standard(threading_file())


def threading_file():
    import threading

    return threading.__file__
