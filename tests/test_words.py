"""What cudaguard says: no words that the style forbids, and American spelling."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import cudaguard

PACKAGE = Path(cudaguard.__file__).parent
# Riddles, and words of another century (rule 4 of the style).
FORBIDDEN = (
    "told of", "nobody in this process", "lies", "stands in", "anew", "for ever",
    "mended", "rightly", "by itself", "whoever", "nobody has", "serves", "brings",
)  # fmt: skip
# torch and CUDA say "initialize". Parts of words, as British English spells them.
BRITISH = (
    (
        r"\w*(?:initial|normal|recogn|synchron|serial|special|optim|minim|maxim|final|summar"
        r"|material|organ|custom|general|standard|util|author|real|emphas|character|priorit)"
        r"is(?:e[ds]?|ing|ation\w*|ers?)"
    ),
    r"\w*(?:behavi|col|fav|hon|neighb|lab|flav)our\w*",
    r"(?:un)?(?:cancel|label|model|travel|signal)l(?:ed|ing)",
    r"analys(?:e[ds]?|ing)", r"cent(?:re|red|res)", r"catalogues?", r"licen[c]es?", r"defence",
    r"artefacts?", r"grey", r"whilst", r"amongst",
)  # fmt: skip
WORDS = re.compile(rf"\b(?:{'|'.join(FORBIDDEN)})\b", re.IGNORECASE)
SPELLING = re.compile(rf"\b_*(?:{'|'.join(BRITISH)})\b", re.IGNORECASE)


# Commands whose words stand beside what uses them.
ONE_MODULE = {("main",), ("lint",), ("check_extension",),
              ("doctor", "command"), ("doctor", "checks"), ("bisect", "command"),
              ("run", "crash")}  # fmt: skip


def is_text(path: Path) -> bool:
    """Returns whether a module is there for what it says."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    names = {"rules", "findings"}
    return (
        parts in {("errors",), ("api",)}
        or (parts[0] == "features" and (bool(names & set(parts[2:])) or parts[-1] == "table"))
        or (parts[0] in ("core", "tools") and "messages" in parts[-1])
        or (parts[0] == "tools" and ("messages" in parts or parts[1:] in ONE_MODULE))
        or parts[-1] in ("known_errors", "findings")
    )


MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if is_text(path)]


def texts_of(path):
    """Returns the lines and values of string constants, docstrings included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def found_in(pattern, path):
    return [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {found[0]!r} in {text!r}"
        for line, text in texts_of(path)
        for found in pattern.finditer(text)
    ]


def test_modules_that_talk_are_seen():
    names = {str(path.relative_to(PACKAGE)) for path in MODULES}
    assert {
        "api.py", "core/known_errors.py", "core/findings.py", "errors.py",
        "features/cuda_init/known_errors.py", "features/cuda_init/findings.py",
        "features/import_order/rules.py", "features/symbol_scope/rules.py",
        "tools/doctor/checks.py", "tools/run/crash.py",
    } <= names  # fmt: skip


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_forbidden_word_is_said(path):
    assert found_in(WORDS, path) == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.ini")), ids=lambda path: path.parent.name)
def test_no_forbidden_word_is_in_a_file_of_messages(path):
    text = path.read_text(encoding="utf-8")
    assert WORDS.findall(text) + SPELLING.findall(text) == []


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_spelling_is_american(path):
    assert found_in(SPELLING, path) == []


def test_names_are_american():
    """Of modules, functions, classes, variables and attributes."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for field in ("name", "id", "attr", "arg"):
                name = getattr(node, field, None)
                for part in name.split("_") if isinstance(name, str) else ():
                    if SPELLING.fullmatch(part):
                        found.add(f"{path.relative_to(PACKAGE.parent)}: {name}")
    assert found == set()


@pytest.mark.parametrize("name", cudaguard.__all__)
def test_no_forbidden_word_is_in_a_public_docstring(name):
    public = getattr(cudaguard, name)
    documented = [public]
    if inspect.isclass(public):
        documented += [one for key, one in vars(public).items() if not key.startswith("_")]
    for one in documented:
        text = inspect.getdoc(one) if callable(one) or isinstance(one, property) else ""
        assert WORDS.findall(text or "") == []
        assert SPELLING.findall(text or "") == []


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_no_docstring_begins_with_a_question(path):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [
        first
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kinds)
        for first in [(ast.get_docstring(node) or "").partition("\n\n")[0]]
        if "?" in first
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_british"),
    [
        ("CUDA was initialised", True),
        ("the behaviour of", True),
        ("is_initialised", True),
        ("initialized, otherwise a colored promise", False),
    ],
)
def test_spelling_pattern(text, is_british):
    assert bool(SPELLING.search(text)) == is_british
