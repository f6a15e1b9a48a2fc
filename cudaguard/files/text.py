"""Text for terminals and logs: what they would act on is written as an escape.

Names of files, distributions and modules are whatever somebody chose: a control sequence would
clear the screen, a new line would forge a finding, and ``::error::`` makes GitHub annotate a build.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    T = TypeVar("T")

_SHORTEST, _LONGEST = 15, 92  # characters of a headline, which has an id before it
_QUOTED = r"""(?<!\w)'[^']*'|`[^`]*`|"[^"]*"|\([^()]*\)"""
# Commands to GitHub, Azure and TeamCity, which they see at any place of a line. Those of GitHub
# that begin with two colons count at the beginning, where a line may be broken.
_COMMANDS = ("##[", "##vso[", "##teamcity[")
RULE_LINE = "\n      "  # between the lines of a rule that a remedy shows


def printable(text: str, keep: str = "") -> str:
    """Return a text as one line that no terminal and no log acts on."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)
    if "::" in text:
        words = text.split(" ")
        text = " ".join(
            word.replace("::", f"{_escape(':')}:", 1) if word.lstrip()[:2] == "::" else word
            for word in words
        )
    for command in _COMMANDS if "##" in text else ():
        text = text.replace(command, f"{_escape('#')}{command[1:]}")
    return text


def printable_part(text: str) -> str:
    """Return a part of a finding as printable text; a rule in it keeps its lines."""
    return RULE_LINE.join(map(printable, text.split(RULE_LINE)))


def headline(what: str) -> tuple[str, str, str]:
    """Return the headline for what was found, what follows from it, and its reason.

    A short text is the headline; of a long one, what stands before the last of its sentences, or
    before a colon.
    """
    if len(what) <= _LONGEST:
        return what, "", ""
    import re

    plain = re.sub(_QUOTED, lambda quoted: "x" * len(quoted[0]), what)
    ends = list(re.finditer(r"[.:;] |, (?=expected )", plain))
    ends = [end for end in ends if end.start() >= _SHORTEST]
    if not ends:
        return what, "", ""
    last = [ends[0], *(end for end in ends if end.start() < _LONGEST)][-1]
    first, rest = what[: last.start()], what[last.end() :]
    return (f"{first}.", rest, "") if last[0] == ". " else (f"{first}.", "", rest)


def printable_lines(text: str) -> str:
    """Return a text of several lines, each made printable."""
    return "\n".join(printable(line, keep="\t") for line in text.split("\n"))


# What has several lines, by its key in documents.
_LINES = {"code": printable_lines, "toml": printable_lines, "remedy": printable_part}


def printable_data(data: T, make: Callable[[str], str] = printable) -> T:
    """Return the document of a command as its text form shows it; JSON has the exact data."""
    if isinstance(data, str):
        return make(data)  # type: ignore[return-value]  # the same type, here and below
    if isinstance(data, dict):
        return {  # type: ignore[return-value]
            printable_data(key): printable_data(value, _LINES.get(key, printable))
            for key, value in data.items()
        }
    return type(data)(map(printable_data, data)) if isinstance(data, (list, tuple)) else data


def _escape(character: str) -> str:
    code = character.encode("unicode_escape").decode()
    return code if code != character else f"\\x{ord(character):02x}"


# --- What was probably meant by a word or an id that is not known ---------------------------------

_LIKENESS = 0.7  # of 1: "demolish" is not meant to be a verb of ours
_LOOKS_LIKE = str.maketrans("OQIL", "0011")  # letters that are taken for digits


def close_match(word: object, names: Iterable[str]) -> str:
    """Return the name that is most like a word; empty if none is like it."""
    from difflib import get_close_matches

    if not isinstance(word, str):
        return ""
    return next(iter(get_close_matches(word, names, 1, _LIKENESS)), "")


def same_id(id: str, known: Iterable[str]) -> str:
    """Return a known id as it is spelled, given in upper or lower case; empty if there is none."""
    known = tuple(known)
    if id in known:
        return id
    return next((name for name in known if name.casefold() == id.casefold()), "")


def closest_id(id: str, known: Iterable[str]) -> str:
    """Return the known id that was probably meant, as in CG001 for ``cg0O1`` or ``CG1``."""
    known = tuple(known)
    spelled = {name.upper(): name for name in known}
    word = id.strip().upper()
    letters = word.rstrip("0123456789OQIL")
    number = word[len(letters) :].translate(_LOOKS_LIKE)
    padded = f"{letters.rstrip('-_ ')}{number.zfill(3)}" if number else ""
    if len(number) == 3 and word not in spelled:  # any other id is as near
        return spelled.get(padded, "")
    return spelled.get(padded) or spelled.get(close_match(word, spelled), "")
