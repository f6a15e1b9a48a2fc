"""The gallery of messages: what tests have the guard say, compared with approved words.

``tests/words/FEATURE/MESSAGE.txt`` has the approved text of one message, and names the test that
makes the guard say it. That test then fails if the words are others. To look at new words and
approve them: ``CUDAGUARD_APPROVE=1 python -m pytest ...``, and read the difference that git shows.

Findings of this process are noted as they are made, those of children are read from journals, and
those of commands from the JSON that they print.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from cudaguard.core.findings import Finding
from cudaguard.tools.run.record import read_events

from . import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = Path(__file__).resolve().parent / "words"
IS_APPROVING = bool(os.environ.get("CUDAGUARD_APPROVE"))
IS_SKIPPED = pytest.StashKey[bool]()  # of a test, once it was called
_KEYS = {"id", "what", "remedy", "severity"}


class Message(NamedTuple):
    """One approved text.

    Args:
        path: Its file.
        test: The id of the test that produces it.
        how: ``program``, ``stub`` (of the CUDA driver) or ``sample`` (worded from sample facts).
        severity: ``info``, ``warning`` or ``error``.
        text: The finding as it is shown.
    """

    path: Path
    test: str
    how: str
    severity: str
    text: str

    @property
    def id(self) -> str:
        """The id of the rule, detector or check."""
        return self.text.partition("]")[0].lstrip("[")

    @property
    def name(self) -> str:
        """The name of the function that words it; variants of its text follow a hyphen."""
        return self.path.stem.partition("-")[0]

    @property
    def function(self) -> str:
        """The same with feature and variant."""
        return f"{self.path.parent.name}.{self.path.stem}"

    def save(self) -> None:
        """Write the file."""
        head = f"test: {self.test}\nhow: {self.how}\nseverity: {self.severity}\n\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(head + self.text + "\n", encoding="utf-8")


def read(path: Path) -> Message:
    """Read an approved text."""
    head, _, text = path.read_text(encoding="utf-8").partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    return Message(path, **fields, text=text.rstrip("\n"))


def approved() -> list[Message]:
    """Return all approved texts."""
    return [read(path) for path in sorted(WORDS.glob("*/*.txt"))]


BY_TEST: dict[str, list[Message]] = {}
for _message in approved():
    BY_TEST.setdefault(_message.test, []).append(_message)


def steady(text: str, folder: Path) -> str:
    """Return a text without what differs from run to run and from machine to machine."""
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for path in sorted({*packages, *(p for p in sys.path if p.endswith("-packages"))}):
        text = text.replace(path, "/venv/lib/python3.11/site-packages")
    text = text.replace(sys.executable, "/venv/bin/python").replace(sys.prefix, "/venv")
    text = text.replace(str(WORDS.parent.parent), "/cudaguard")
    for parent in (folder, folder.resolve(), folder.parent):
        text = text.replace(str(parent), "/home/me")
    for pattern, steadied in (
        (r"(?<!\S)/venv/bin/python -m pip ", "pip "),  # without an activated environment
        (r"\bprocess \d+", "process 4242"),
        (r"(?<=ps -fp )\d+", "4242"),
        (r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b", "2026-01-31 12:00"),
        (rf"\b([Pp]ython ?)3\.{sys.version_info[1]}t?\b", r"\g<1>3.11"),
        (rf"\.cpython-3{sys.version_info[1]}t?-[\w-]+\.so", ".so"),
        (r"0x[0-9a-f]{5,}", "0x7f0000000000"),
    ):
        text = re.sub(pattern, steadied, text)
    return text


class Recorder:
    """Hears what is found while a test runs, here and in its children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.findings: list[Finding] = []
        self.outputs: list[str] = []

    def heard(self) -> Iterator[Finding]:
        """Return all findings."""
        yield from list(self.findings)
        for journal in sorted(self.folder.iterdir()):
            for line in read_events(str(journal)):
                if line.kind == "finding":
                    yield line.finding()
        for output in self.outputs:
            try:
                yield from _findings_in(json.loads(output))
            except ValueError:
                continue


def _findings_in(value: Any) -> Iterator[Finding]:
    if isinstance(value, dict):
        if value.keys() >= _KEYS:
            fields = {key: value[key] for key in Finding._fields if key in value}
            yield Finding(**fields)
        for one in value.values():
            yield from _findings_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from _findings_in(one)


@pytest.fixture(autouse=True)
def words_as_approved(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Compare what a test of the gallery has the guard say."""
    if not (messages := BY_TEST.get(request.node.nodeid)):
        yield
        return
    folder: Path = request.getfixturevalue("tmp_path_factory").mktemp("words")
    home: Path = request.getfixturevalue("tmp_path")
    recorder = Recorder(folder)
    make = Finding.__init__

    def noting(self: Finding, *args: Any, **keywords: Any) -> None:
        make(self, *args, **keywords)
        recorder.findings.append(self)

    monkeypatch.setattr(Finding, "__init__", noting)
    monkeypatch.setitem(processes.EXTRA, "CUDAGUARD_JOURNAL", str(folder / "%p.jsonl"))
    monkeypatch.setattr(processes, "OUTPUTS", recorder.outputs)
    yield
    if request.node.stash.get(IS_SKIPPED, False):
        return
    texts = {steady(str(one), home): one.severity for one in recorder.heard()}
    for message in messages:
        compare(message, texts)


def compare(message: Message, texts: dict[str, str]) -> None:
    """Fail unless the words are those approved; or approve them, if that was asked for."""
    candidates = [text for text in texts if text.startswith(f"[{message.id}]")]
    if message.text in candidates and texts[message.text] == message.severity:
        return
    assert candidates, f"{message.test} no longer has the guard say {message.id}"
    said = max(
        candidates, key=lambda text: difflib.SequenceMatcher(None, message.text, text).ratio()
    )
    if IS_APPROVING:
        message._replace(text=said, severity=texts[said]).save()
        return
    difference = "\n".join(difflib.ndiff(message.text.splitlines(), said.splitlines()))
    pytest.fail(
        f"The words of {message.function} are not those in {message.path}:\n{difference}\n"
        f"If they are better, run: CUDAGUARD_APPROVE=1 python -m pytest -m '' '{message.test}'",
        pytrace=False,
    )
