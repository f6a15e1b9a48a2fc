"""Errors of the program that leave a guarded block or end it: what they mean is noted on them.

No note is added where an error is raised: the program may handle it, and doctest,
``pytest.raises(match="...$")`` and ``format_exception_only()[-1]`` take a note for its last words.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from math import log

from cudaguard.core.known_errors import (
    FILE,
    VAGUE,
    Explainer,
    Hit,
    KnownError,
    best_in,
    endings_of,
    is_passed_on,
    is_quiet,
    known_in,
    literal_in,
    sections_in,
    shown_with,
    streams_of,
    text_of,
)
from cudaguard.core.table import table
from cudaguard.errors import CudaGuardError
from cudaguard.files import os, own_errors, program_errors
from cudaguard.hooks.barrier import ON_PURPOSE, print_instead
from cudaguard.hooks.caller import caller_frame
from cudaguard.kernel import TRACEBACK
from cudaguard.system import peek
from cudaguard.system.statuses import status_begun_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard.core.findings import Finding
    from cudaguard.core.reports import Reporter

_LEAST = 20  # characters of a message that cannot be another one
_LONGEST_TEXT, _DEEPEST = 2000, 30  # characters of an error, frames: what a record needs


def explainers() -> list[Explainer]:
    """Return what the core and the features can say of the texts of errors."""
    return [*map(_explainer, table.index.KNOWN_ERRORS)] if table.index else []


@cache
def _explainer(entry: str) -> Explainer:
    """Return an object of the index, which may be a file in a package."""
    package, _, file = entry.partition(":")
    if file == FILE:
        __import__(package)
        return Explainer(known_in(str(sys.modules[package].__file__)))
    found: Explainer = table.resolve(entry)
    return found


def known_errors() -> list[KnownError]:
    """Return every message that is known."""
    return [known for explainer in explainers() for known in explainer.known]


def in_this_process(finding: Finding) -> tuple[Finding | None, bool]:
    """Return what a text means, with what is true of this process, and whether it is a finding.

    None where that was said otherwise.
    """
    for explainer in explainers():
        if finding.id in explainer.ids:
            return explainer.in_process(finding), explainer.is_found
    return finding, False


def explain_text(text: str, *, is_guarded: bool = False) -> Finding | None:
    """Return what a message means, a whole log included; None if it says nothing of CUDA.

    A message without an entry gets a general answer. With `is_guarded` the program has the guard.
    """
    known = known_errors()
    hit = best_in(text, known, is_typed=True) or general_in(text, known)
    return None if hit is None else _said(hit, is_guarded=is_guarded)


def closest(text: str) -> list[tuple[str, str]]:
    """Return id and title of what is nearest to a message of which nothing is known."""
    known = known_errors()
    titles = {kind.id: kind.title for kind in table.kinds()}
    titles = dict(sorted({**titles, **{one.id: one.title for one in known}}.items()))
    return [(id, titles[id]) for id in closest_in(text, known, titles)]


def _said(hit: Hit, *, is_guarded: bool) -> Finding:
    return hit.finding if is_guarded else hit.known.to_unguarded(hit.finding)


def explain_error(
    error: BaseException, *, with_context: bool = True, is_guarded: bool = False
) -> Finding | None:
    """Return what an error means, or one that led to it; what is certain goes before the vague."""
    vague: Finding | None = None
    for current in shown_with(error, with_context=with_context):
        hit = best_in(f"{type(current).__name__}: {text_of(current)}", known_errors())
        if hit is not None and hit.known.certainty > VAGUE:
            return _said(hit, is_guarded=is_guarded)
        vague = vague or (None if hit is None else _said(hit, is_guarded=is_guarded))
    return vague


def error_passes(reporter: Reporter, error: BaseException, *, is_printed: bool = False) -> None:
    """Note on an error what it means; one about a CUDA graph is a finding as well. Never raises.

    Before Python 3.11 an error takes no notes: of the last kind there is a warning then. One that
    `is_printed` already a note would not reach any more.
    """
    try:
        _note(reporter, error, is_printed=is_printed)
    except ON_PURPOSE as warning:  # the program's own error is the one to be raised
        print_instead(warning)
    except own_errors(Exception) as failure:
        reporter.broken("looking at an error", failure)


def record_end(reporter: Reporter, error: BaseException) -> None:
    """Record the error that ends the program, where it was raised, and what it means."""
    try:
        details: dict[str, Any] = {"stack": _stack(error)}
        warned = _told(reporter, error)
        finding = warned or explain_error(error, is_guarded=True)
        if finding is not None and finding.id not in reporter.silenced:
            details["finding"] = finding.to_dict()
            is_warned = warned is not None and reporter.is_heard()
            is_explained = is_warned or reporter.explained == id(error)
            details["is_said"] = is_explained or _has_note(error)
        text = text_of(error)[:_LONGEST_TEXT]
        reporter.journal.note("error", f"{type(error).__name__}: {text}", details=details)
    except MemoryError:  # that is what the program dies of
        return
    except own_errors(Exception) as failure:
        reporter.broken("recording an error", failure)


def _told(reporter: Reporter, error: BaseException) -> Finding | None:
    """Return the finding that was warned of about these very words of the error, if any."""
    said = text_of(error)
    if len(said) < _LEAST:
        return None
    return next(
        (
            finding
            for finding in reporter.channel.findings
            if finding.severity != "info" and any(said in line for line in finding.evidence)
        ),
        None,
    )


def _stack(error: BaseException) -> list[tuple[str, int, str]]:
    """Return file, line and function of the innermost frames, innermost last."""
    found: list[tuple[str, int, str]] = []
    entry = TRACEBACK.__get__(error)
    while entry is not None:
        code = entry.tb_frame.f_code
        if not code.co_filename.startswith("<frozen importlib"):
            found.append((code.co_filename, entry.tb_lineno, code.co_name))
        entry = entry.tb_next
    return found[-_DEEPEST:]


def _note(reporter: Reporter, error: BaseException, *, is_printed: bool) -> None:
    if issubclass(type(error), CudaGuardError):  # ours say it themselves
        return
    if _told(reporter, error) is not None:
        return
    finding = explain_error(error, with_context=False, is_guarded=reporter.mode != "off")
    if finding is None or finding.id in reporter.silenced:
        return
    if finding.command.startswith("cudaguard run") and reporter.journal.is_recorded:
        return
    exact, is_found = in_this_process(finding)
    if exact is None:
        return
    finding = exact.replace(command=_for_this_program(exact.command))
    can_be_noted = reporter.is_heard() and not is_printed
    is_noted = can_be_noted and _add_note(error, f"cudaguard {finding}")
    if is_found:
        reporter.found(finding, caller_frame(), noted_on_error=is_noted)
        reporter.explained = id(error)


def _for_this_program(command: str) -> str:
    """Return a command with the file of this program in it, where it takes one and there is one."""
    file = peek(sys.modules.get("__main__"), "__file__")
    if "SCRIPT" not in command.split() or not isinstance(file, str):
        return command
    import shlex

    return command.replace("SCRIPT", shlex.quote(file))


def _add_note(error: BaseException, note: str) -> bool:
    """Add a note once; False if this error takes none."""
    try:
        if not _has_note(error):
            error.add_note(note)  # type: ignore[attr-defined]  # Python 3.11 and later
    except program_errors(Exception):  # an older Python, or a class that has made it something else
        return False
    return True


def _has_note(error: BaseException) -> bool:
    return any(str(one).startswith("cudaguard ") for one in peek(error, "__notes__") or ())


# --- A message that has no entry: by its parts, or the closest ------------------------------------

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
    actors, packages, of_any, acts = _parts()
    for actor, pattern, decides in (*actors, *packages):
        said, may = pattern.search(line), of_any if pattern is packages[0][1] else of_any + acts
        act = next((one for one in may if said and one[1].search(line)), None)
        if said and act:
            who = said.groupdict().get("who", "")
            told = {"actor": actor.format(who=who), "act": act[0], "advice": act[2]}
            told["decides"] = decides.replace("{who}", re.sub(r"[\W_]", ".", who))
            return words.hit_in(line, 0, len(line), words.with_words(**told))
    return None


_WORD = re.compile(
    r"(?<![a-z])(?!(?:does|not|work|the|and|for|with|error|when|this|help)\b)[a-z][a-z0-9_+]{2,40}|\d{3,4}"
)
_ENDING = re.compile(r"(?<=...)(?:ing|ed|s)$")
_LEAST_ALIKE = 0.5  # of 1: the part of what a message says that another one must have
_MOST_NEAR = 3


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
    best = [id for _, id in sorted((-score, id) for id, score in near.items())][:_MOST_NEAR]
    return [id for id in best if near[id] >= _LEAST_ALIKE]


def _words_of(text: str) -> set[str]:
    """Return the words of a text, without what is added to a verb or for the plural."""
    return {_ENDING.sub("", word) for word in _WORD.findall(text.lower())}
