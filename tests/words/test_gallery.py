"""Every message has an approved text, and the texts keep the rules of style.

The gallery itself (``tests/gallery.py``) compares the texts with what tests have the guard say.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cudaguard
from cudaguard.core import findings as core
from cudaguard.core.explain import known_errors
from cudaguard.features.array_interface import findings as arrays
from cudaguard.features.symbol_scope import findings as scope

from ..documents import ERRORS
from ..gallery import approved
from ..test_words import SPELLING, WORDS

PACKAGE = Path(cudaguard.__file__).parent
ROOT = Path(__file__).resolve().parent.parent.parent
MESSAGES = approved()
MOST_WORDS = 20  # in a sentence
MOST_OF_CONSEQUENCE = 47  # its certainty included
LONGEST = 92  # characters of a headline behind its id; a path counts as the name of its file
# Quoted errors, code, paths, links and what is said in passing count as one word.
ONE_WORD = re.compile(
    r"`[^`]*`|(?<![\w'])'[^\n]*?'(?![\w'])|\"[^\"]*\"|\([^()]*\)|https?://\S+|[\w.~-]*/[\w./~+-]+"
)
# The line of the program that led to it; who did it may stand before that.
PLACE = re.compile(r"(?:\w+ )*(?:imported|loaded|requested) at ")
SENTENCE_ENDS = re.compile(r"[.;:]\s+|[.;:]$")
# What may be advised, so that a remedy that is none is noticed.
VERBS = {
    *("activate", "build", "check"),
    *("add", "allocate", "ask", "call", "convert", "correct", "delete", "do", "enable", "export"),
    *("find", "fix", "follow", "give", "import", "initialize", "install", "keep", "let", "limit"),
    *("link", "load", "make", "move", "name", "pass", "put", "read", "reboot", "rebuild"),
    *("reinstall", "remove", "repair", "report", "restart", "return", "run", "save", "set"),
    *("silence", "start", "switch", "uninstall", "unset", "update", "upgrade", "use", "wait"),
    *("wrap", "write", "hold"),
}


def functions():
    """Yield feature and name of every function that words a finding."""
    places = [
        *((path.parent.name, path) for path in PACKAGE.glob("features/*/findings.py")),
        ("core", PACKAGE / "core" / "findings.py"),
        ("doctor", PACKAGE / "tools" / "doctor" / "checks.py"),
    ]  # fmt: skip
    for feature, path in places:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or node.returns is None or node.args.vararg:
                continue
            if ast.unparse(node.returns) == "Finding":
                yield feature, path.stem, node.name


def test_every_message_is_in_the_gallery():
    there = {(message.path.parent.name, message.name) for message in MESSAGES}
    lacking = [
        f"{feature}/{name}"
        for feature, module, name in functions()
        if (feature, name) not in there and (feature, f"{module}.{name}") not in there
    ]
    assert not lacking, "begin tests/words/<name>.txt by hand: tests/README.md, 'Words'"


def test_test_of_each_message_exists():
    wrong = f"{MESSAGES[0].test}-or-none"
    asked = ["-qm", "", "--collect-only", "-pno:cacheprovider", wrong, *{m.test for m in MESSAGES}]
    ran = subprocess.run([sys.executable, "-m", "pytest", *asked], cwd=ROOT, capture_output=True)
    lacking = re.findall(r"not found: .*::(.*)\s+\(no match", ran.stderr.decode())
    assert lacking == [wrong.rpartition("::")[2]]


def parts_of(text):
    """Return the parts of a message, pairs of label and text, in their order."""
    head, *lines = re.split(r"\n  (?=\S)", text)
    parts, labels = [("headline", head.partition("] ")[2])], ("because", "fix", "more", "run")
    for line in lines:
        label, colon, rest = line.partition(": ")
        is_labeled = colon and label in labels
        texts = re.split(r"\n {11}", rest if is_labeled else line)
        parts += [(label if is_labeled else "follows", one) for one in texts]
    return parts


def faults(message):
    """Yield what a message does against the rules of style."""
    parts = parts_of(message.text)
    labels = [label for label, _ in parts]
    order = ("headline", "follows", "because", "fix", "more", "run")
    if labels != sorted(labels, key=order.index) or labels.count("follows") > 1:
        yield f"not in order: {labels}"
    is_ours = message.id.startswith("CG")
    evidence = [text for label, text in parts if label == "because"]
    for place in filter(PLACE.match, evidence[1:]):
        if place != evidence[1]:
            yield f"the line of the program comes late in the evidence: {place}"
    if is_ours and message.severity != "info" and not {"run", "more"} & set(labels):
        yield "it names no command, and no page"
    if len(re.sub(r"(?<!\S)/\S*/|\.cpython-[\w-]+", "", parts[0][1])) > LONGEST:
        yield f"the headline is too long: {parts[0][1]}"
    for label, text in parts:
        if label in ("run", "more"):
            continue
        shown = f"{label}: {text}"
        for pattern in (WORDS, SPELLING):
            for found in pattern.finditer(text):
                yield f"{found[0]!r} in the {shown}"
        if re.search(r"\(\)(?<!\w\(\))|\{\}| {2,}(?! *[\[\w])| [,.;:](?= |$)", text):
            yield f"an empty slot in the {shown}"
        if re.search(r"\ba [aeio]", text):
            yield f"'a' before a vowel in the {shown}"
        if label == "because":
            continue
        told = text.partition("\n")[0]  # a rule that is to be saved may follow
        plain = ONE_WORD.sub("X", told)
        for sentence in SENTENCE_ENDS.split(plain):
            if len(sentence.split()) > MOST_WORDS:
                yield f"a sentence of {len(sentence.split())} words in the {shown}"
        if label == "follows" and is_ours:
            if len(told.split()) > MOST_OF_CONSEQUENCE:
                yield f"{len(told.split())} words in the {shown}"
            if told[-1] not in ".'":
                yield f"no full stop at the end of the {shown}"
            if re.match(r"(?:it|its|the|each|every|this|that|they|what|with|an?)\b", text):
                yield f"a small letter begins the {shown}"
        if label == "fix" and re.split(r"\W", told)[0] not in VERBS:
            yield f"the fix begins with no verb: {text}"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.function)
def test_message_keeps_the_rules_of_style(message):
    assert list(faults(message)) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[CG999] It lies there.\n  run: x", "'lies' in"),
        ("[CG999] The colour.\n  run: x", "'colour' in"),
        ("[CG999] Built for Python : its  name.\n  run: x", "an empty slot"),
        ("[CG999] A lib ignores a array.\n  run: x", "'a' before a vowel"),
        (f"[CG999] {'to ' * 20}it.\n  run: x", "a sentence of 21"),
        ("[CG999] It.\n  It ends\n  run: x", "no full stop"),
        (f"[CG999] It.\n  {'It is. ' * 24}\n  run: x", "48 words"),
        (f"[CG999] {'long ' * 18}is. It.\n  run: x", "too long"),
        ("[CG999] It.\n  fix: see the evidence\n  run: x", "begins with no verb"),
        ("[CG999] It.", "names no command"),
        ("[CG999] It.\n  run: x\n  more: y", "not in order"),
        ("[CG999] It.\n  because: x\n           y\n           loaded at y\n  run: x", "comes late"),
    ],
)
def test_faults_are_found(text, fault):
    message = MESSAGES[0]._replace(text=text, severity="warning")
    (found, *_) = faults(message)
    assert fault in found


@pytest.mark.parametrize("known", known_errors(), ids=lambda known: known.id)
def test_explanation_keeps_the_rules_of_style(known):
    found = cudaguard.explain(ERRORS[known.id][0]).replace(evidence=())
    message = MESSAGES[0]._replace(text=str(found), severity=found.severity)
    assert list(faults(message)) == []
    assert not found.command.startswith("cudaguard explain")


# Messages that no test hears where they are said: they are worded here from sample facts.
SCENES = {
    "array_interface.waited": lambda: arrays.waited("numba.cuda.DeviceNDArray", "warp", 7),
    "core.no_journal": lambda: core.no_journal(
        "/logs/cudaguard.jsonl", FileNotFoundError(2, "No such file or directory")
    ),
    "symbol_scope.static_runtime": lambda: scope.static_runtime(
        "nvcv", "/env/nvcv/libnvcv_types.so", ("std::ctype<char>::id",), "train.py:3",
        "it calls dladdr(), and may look for files beside its own",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_sample(name):
    assert SCENES[name]().remedy or name == "array_interface.waited"
