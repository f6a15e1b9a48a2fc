"""Explain a message that has no entry: by its parts, or name the closest entries."""

from __future__ import annotations

import re
from functools import cache
from math import log

from cudaguard.core.error_texts import endings_of, is_passed_on, is_quiet, streams_of
from cudaguard.core.known_errors import Hit, literal_in, sections_in
from cudaguard.files import os
from cudaguard.system.statuses import status_begun_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudaguard.core.known_errors import KnownError

GENERAL_ID = "CG756"
_FILE = os.path.join(os.path.dirname(__file__), "parts.ini")
_LONGEST_LINE, _MOST_LINES = 1000, 200
_SHORT = 80  # characters of a text that only begins what a status says
_OF_GPUS = re.compile(r"(?i)cuda|gpu|nccl|torch|jax|xla|dnn|vllm|sglang|engine ?core|workerproc")
_OF_KERNELS = re.compile(r"(?i)kernel|device|launch|memory access|misaligned|ptx|stream|peer")
_FRAME = re.compile(r'\s|File "|Traceback|\^|#\d')


@cache
def _parts() -> tuple[list[tuple[str, re.Pattern[str], str]], ...]:
    """Return actors and acts: title, pattern, and what stands behind it."""
    return tuple(
        [
            (title, re.compile(pattern), " ".join(rest))
            for title, (pattern, *rest) in section.items()
        ]
        for section in sections_in(_FILE).values()
    )


def general_in(text: str, known: Iterable[KnownError]) -> Hit | None:
    """Return a general answer to a message: who speaks, and what has failed; None without both."""
    words = next(one for one in known if one.id == GENERAL_ID)
    is_aftermath = False
    for stream in streams_of(text):
        endings = endings_of(stream) or [range(len(stream))]
        part = next((one for one in endings if not is_passed_on(stream, one)), None)
        if part is None:
            is_aftermath = is_aftermath or _OF_GPUS.search(stream) is not None
            continue
        lines = stream[part.start : part.stop].splitlines()[-_MOST_LINES:][::-1]
        found = next(filter(None, (_read(line, words) for line in lines)), None)
        if found is not None:
            return found
    is_said = len(text) <= _SHORT and _OF_KERNELS.search(text)
    status = status_begun_by(text) if is_said else None
    if is_aftermath:
        told = {"actor": "This line", "act": "something else has failed, which stands above it"}
    elif status is not None:
        told = {"actor": status.title, "act": status.meaning, "advice": status.fix}
    else:
        return None
    return words.hit_in(text, 0, len(text), words.with_words(**told))


def _read(line: str, words: KnownError) -> Hit | None:
    if len(line) > _LONGEST_LINE or _FRAME.match(line) or is_quiet(line, len(line)):
        return None
    actors, acts = _parts()
    actor = next((one for one in actors if one[1].search(line)), None)
    act = next((one for one in acts if one[1].search(line)), None)
    if actor is None or act is None:
        return None
    finding = words.with_words(actor=actor[0], act=act[0], advice=act[2], decides=actor[2])
    return words.hit_in(line, 0, len(line), finding)


# --- The nearest ----------------------------------------------------------------------------------

_WORD = re.compile(
    r"(?<![a-z])(?!(?:does|not|work|the|and|for|with|error|when|this|help)\b)[a-z][a-z0-9_+]{2,40}|\d{3,4}"
)
_ENDING = re.compile(r"(?<=...)(?:ing|ed|s)$")
_LEAST = 0.5  # of 1: the part of what a message says that another one must have
_MOST = 3


def closest_in(text: str, known: Iterable[KnownError], titles: Mapping[str, str]) -> list[str]:
    """Return ids of what is nearest to a message, the nearest first; [] if nothing is near."""
    said = {id: _words_of(title) for id, title in titles.items()}
    for one in known:
        pieces = (one.title, one.what, *map(literal_in, one.says), *one.status)
        said[one.id] = _words_of(" ".join(map(str, pieces)))
    asked = _words_of(text[-_LONGEST_LINE:])
    weights = {
        word: log((len(said) + 1) / (1 + sum(word in words for words in said.values())))
        for word in asked
    }
    total = sum(weights.values())
    near = {
        id: sum(weights[word] for word in words & asked) / total / (1 + len(words) / 200)
        for id, words in said.items()
        if total
    }
    best = [id for _, id in sorted((-score, id) for id, score in near.items())][:_MOST]
    return [id for id in best if near[id] >= _LEAST]


def _words_of(text: str) -> set[str]:
    """Return the words of a text, without what is added to a verb or for the plural."""
    return {_ENDING.sub("", word) for word in _WORD.findall(text.lower())}
