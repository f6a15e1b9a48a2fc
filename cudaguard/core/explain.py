"""What the text of an error means: by an entry, else by its parts; and where that is said.

Of an error that leaves a guarded block or ends the program it is noted on it. No note is added
where an error is raised: the program may handle it, and doctest, ``pytest.raises(match="...$")``
and ``format_exception_only()[-1]`` take a note for its last words.
"""

from __future__ import annotations

import re
import sys
from functools import cache, partial
from math import log

from cudaguard.core.known_errors import (
    FILE,
    LIKELY,
    NAMED,
    VAGUE,
    Explainer,
    Hit,
    KnownError,
    best_in,
    endings_of,
    is_of_field,
    is_passed_on,
    is_quiet,
    known_in,
    line_at,
    lines_back,
    literal_in,
    of_texts,
    of_this_field,
    parts,
    shown_with,
    streams_of,
    without,
)
from cudaguard.core.table import table
from cudaguard.errors import CudaGuardError
from cudaguard.files import os, own_errors, program_errors, text_of
from cudaguard.hooks.barrier import ask
from cudaguard.hooks.caller import caller_frame, entries_of
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system import peek
from cudaguard.system.statuses import status_begun_by

if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.findings import Finding
    from cudaguard.core.reports import Reporter

_START = "docker run --gpus all"  # of the steps of remedies: what a place may have another one for
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
    names = finding.command.split() if finding.command.startswith("unset ") else ()
    here = (f"in this process: {name}={os.environ[name]}" for name in names if name in os.environ)
    return finding.replace(evidence=(*finding.evidence, *here)), False


def explain_text(text: str, *, is_guarded: bool = False) -> Finding | None:
    """Return what a message means, a whole log included; None if it says nothing of CUDA.

    A message without an entry gets a general answer. With `is_guarded` the program has the guard.
    """
    noise = [one for one in known_errors() if not one.certainty]
    written = streams_of(text)
    streams = [without(noise, stream) for stream in written]
    hit = best_in(text, known_errors(), streams, is_typed=True)
    field = of_this_field(text) if hit is None or hit.known.certainty < NAMED else ""
    is_field = is_of_field(field)  # the slowest look at a text that is not
    if is_field:  # no act is surer than that
        hit = best_in(text, (*known_errors(), *acts()), streams) or hit
    hit = hit or _left(field, streams if is_field else [])
    if hit is None and not any(is_passed_on(one, p) for one in streams for p in endings_of(one)):
        hit = best_in(text, noise, written)
    return hit and _for_place(_said(hit, is_guarded=is_guarded), text, hit.known)


def _said(hit: Hit, *, is_guarded: bool) -> Finding:
    return hit.finding if is_guarded else hit.known.to_unguarded(hit.finding)


def _for_place(finding: Finding, text: str, known: KnownError) -> Finding:
    """Return a finding with those steps first that are for where a text comes from.

    What is for another place of its kind, or in a text of another field for CUDA, is left out.
    """
    places = parts()["places"]
    here = [place for place in places if re.search(places[place][0], text[-_LAST:])]
    kinds = {kind for place in here for kind in places[place][1:2]}
    is_foreign = known.not_if == "other_program" and "not_field" in known.facts

    def weight(step: str) -> int:
        of = next((one for one in places if step.startswith(one) or step.endswith(f"({one})")), "")
        is_cudas = is_foreign and of_texts("ours").search(step)
        return of in here or -bool(is_cudas or kinds.intersection(places.get(of, ())[1:2]))

    start, *_ = *(start for place in here for start in places[place][2:]), _START
    steps = of_texts("between").split(finding.remedy.replace(_START, start))
    left = sorted((one for one in steps if weight(one) >= 0), key=weight, reverse=True)
    links = () if is_foreign and finding.command else finding.links
    return finding.replace(remedy="; ".join(left or steps), links=links)


def explain_error(
    error: BaseException, *, with_context: bool = True, is_guarded: bool = False
) -> Finding | None:
    """Return what an error means, or one that led to it; what is certain goes before the vague."""
    chain = shown_with(error, with_context=with_context)
    hits = (best_in(text, known_errors(), streams_of(text)) for text in map(_as_printed, chain))
    best = max(filter(None, hits), key=lambda hit: min(hit.known.certainty, LIKELY), default=None)
    return best and _said(best, is_guarded=is_guarded)


def _as_printed(error: BaseException) -> str:
    """Return what Python prints of an error, without the lines of the sources."""
    lines = [f'  File "{file}", line {line}, in {name}' for file, line, name in _stack(error)]
    head = ["Traceback (most recent call last):", *lines] if lines else []
    return "\n".join([*head, f"{type(error).__name__}: {text_of(error)}"])


# --- Errors that pass: what they mean is noted on them -------------------------------------------


def error_passes(reporter: Reporter, error: BaseException, *, is_printed: bool = False) -> None:
    """Note on an error what it means; one about a CUDA graph is a finding as well. Never raises.

    Before Python 3.11 an error takes no notes: of the last kind there is a warning then. One that
    `is_printed` already a note would not reach any more.
    """
    note = partial(_note, reporter, error, is_printed=is_printed)
    ask(reporter, "looking at an error", note, prints=True)


def record_end(reporter: Reporter, error: BaseException) -> None:
    """Record the error that ends the program, where it was raised, and what it means."""
    try:
        details: dict[str, Any] = {"stack": _stack(error)}
        warned = _told(reporter, error)
        finding = warned or explain_error(error, is_guarded=True)
        if finding is None and (of := [*filter(None, (e.of_error(error) for e in explainers()))]):
            finding = of[0].replace(evidence=(text_of(error), *of[0].evidence))  # as of texts
        finding = finding and (warned or in_this_process(finding)[0] or finding)
        if finding is not None and finding.id not in reporter.silenced:
            details["finding"] = finding.to_dict()
            is_said = (warned and reporter.is_heard()) or reporter.explained == id(error)
            details["is_said"] = is_said or _has_note(error)
        text = text_of(error)[:_LONGEST_TEXT]
        reporter.journal.note("error", f"{type(error).__name__}: {text}", details=details)
    except MemoryError:  # that is what the program dies of
        return
    except own_errors(Exception) as failure:
        reporter.broken("recording an error", failure)


def _stack(error: BaseException) -> list[tuple[str, int, str]]:
    """Return file, line and function of the innermost frames, innermost last."""
    steps = ((entry.tb_frame.f_code, entry.tb_lineno) for entry in entries_of(error))
    found = [(code.co_filename, line, code.co_name) for code, line in steps]
    return [one for one in found if not one[0].startswith("<frozen importlib")][-_DEEPEST:]


def _told(reporter: Reporter, error: BaseException) -> Finding | None:
    """Return the finding that was warned of about these very words of the error, if any."""
    said = text_of(error)
    found = reporter.channel.findings if len(said) >= _LEAST else ()
    heard = (one for one in found if one.severity != "info")
    return next((one for one in heard if any(said in line for line in one.evidence)), None)


def _note(reporter: Reporter, error: BaseException, *, is_printed: bool) -> None:
    if issubclass(type(error), CudaGuardError) or _told(reporter, error):  # ours say it themselves
        return
    finding = explain_error(error, with_context=False, is_guarded=reporter.mode != "off")
    if finding is None or finding.id in reporter.silenced:
        return
    if finding.command.startswith("cudaguard run") and reporter.journal.record:
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
# Characters; of frames before an error, of words after it, of what only begins a status's words,
# of the end of a text in which its place is named.
_LONGEST_LINE, _BEFORE, _NEAR, _SHORT, _LAST = 1000, 4000, 400, 80, 16_000


# How sure the acts of a section are at most; of one section the first ones are the surest.
_MOST_SURE = {"said": NAMED, "any": VAGUE, "after": 1.95, "acts": 1.5, "advised": 1.25}
_SAID = ("said", "after", "advised")  # who speaks need not be named


@cache
def acts() -> tuple[KnownError, ...]:
    """Return what the parts of a message may tell, as messages that are known."""
    general = next(one for one in known_errors() if one.id == GENERAL_ID)
    found = [(section, *one) for section in _MOST_SURE for one in parts()[section].items()]
    return tuple(
        general.replace(
            says=tuple(one for one in lines if one[0] not in ">$"),
            title=act,
            nouns={**general.nouns, **dict(o.partition(" ")[::2] for o in lines if o[0] in ">$")},
            certainty=_MOST_SURE[section] - order / 1000,
            tell=partial(_tell, section),
        )
        for order, (section, act, lines) in enumerate(found, 1)
    )


def _left(text: str, streams: list[str]) -> Hit | None:
    """Return what is said of a text that tells of nothing else than of an error above it."""
    ours = [one for one in map(of_this_field, streams) if is_of_field(one)]
    ends = ([is_passed_on(one, p) for p in endings_of(one) or [range(len(one))]] for one in ours)
    kernels = of_texts("kernels").search(text[:_SHORT])
    if any(map(all, ends)):
        rank = re.search(r"\brank {1,9}: (\d{1,6}) ", text)
        who = f"Rank {rank[1]}" if rank else "Another part of the program"
        told = {"said": f"{who} failed first, and its error stands above"}
    elif kernels and len(text) <= _SHORT and (status := status_begun_by(text)):
        told = {"said": f"{status.title} reports that {status.meaning}", "advice": status.fix}
    else:
        return None
    act = acts()[0]
    return act.hit_in(text, 0, len(text), act.with_words(**told))


def _named(section: str, text: str) -> tuple[str, str] | None:
    """Return who of a section is named in a text, and what decides."""
    for title, (pattern, *rest) in parts()[section].items():
        if match := re.search(pattern, text):
            who = title.format(**match.groupdict())
            return who, "".join(rest)[2:].replace("{who}", re.sub(r"[\W_]", ".", who))
    return None


def _tell(section: str, act: KnownError, match: re.Match[str]) -> Finding | None:
    """Return what an act means; None where the line tells of no error, or names none who speaks."""
    is_said = section in _SAID
    thing = " ".join((match.groupdict().get("thing") or "").split())
    thing = thing.strip(" .:,!" if "' " in thing else " .:,!'\"")  # without the marks around it
    line = line_at(match.string, match.end() - 1)
    near = _packages_near(match, line)
    if not _is_error(match, thing, line, near, is_said=is_said):
        return None
    said = of_texts("flags").sub("", line.replace(thing, "") if is_said else line)
    bare = of_texts("quoted").sub("", said)
    speaker, is_package = max(_speaker_in(bare, section), _speaker_in(said, section), key=any)
    names = {"thing": thing, **near.names}
    advice = _advice_of(act, match, names)
    if not (is_said or speaker) or not advice:
        return None
    who, decides = speaker or ("this program", "")
    if near.owners and not is_package:
        who = near.owners[-1]
    wanted, found = of_texts("wanted").fullmatch(thing), of_texts("found").search(line)
    asked = thing.replace(" ", "").replace("PyTorch", "torch")
    install = f"python -m pip install '{asked}'" if wanted else ""
    if near.pair and "{caller}" in act.title:
        install = f"python -m pip list | grep -i -E '{'|'.join(near.pair).replace('_', '.')}'"
    told = act.title.format(who=who, **names)
    if found and found[1] not in thing and "version" in act.title:
        told = f"{told} (found: {found[1]})"
    return act.with_words(
        said=re.sub("^th(?=e calling|is )", "Th", told),
        advice=advice,
        decides=install or act.nouns.get("$") or decides or act.nouns["decides"],
    )


class _Packages(NamedTuple):
    """The packages that are named around an act."""

    owners: list[str]  # of the frames before it, or what is built; the last one last
    is_of_field: bool  # False if the last frame is of no package of this field
    is_known: bool  # True if frames or classes tell whose it is
    pair: list[str]  # what calls and what is called, or one of them, or none
    names: dict[str, str]  # what stands for ``{caller}`` and ``{called}``


def _packages_near(match: re.Match[str], line: str) -> _Packages:
    text, end = match.string, match.end()
    before, near = text[max(0, end - _BEFORE) : end], text[lines_back(text, end, 2) : end + _SHORT]
    frames = _FRAME.findall(before)[-1:]
    owners = of_texts("owners").findall(before)
    callers = owners if all("packages" in one for one in frames) else []
    known = [*callers, *(_named("classes", near) or ())[:1]]
    last_first = dict.fromkeys(reversed(known + of_texts("named").findall(line)))
    pair = [*last_first][1::-1]
    ends = [*pair, "what it calls"] if callers else ["the calling code", *pair, "what it calls"]
    names = {"caller": ends[0], "called": ends[1]}
    return _Packages(owners, all(map(is_of_field, frames)), bool(known), pair, names)


def _is_error(
    match: re.Match[str], thing: str, line: str, near: _Packages, *, is_said: bool
) -> bool:
    """Return True if a line tells of an error, and of one of this field."""
    text, begun = match.string, match[0]
    is_programs = begun.startswith("Error:") and not near.pair
    if is_programs or (begun.startswith("rror") and not near.is_of_field):
        return False
    is_another = is_passed_on(line, range(len(line))) or not of_this_field(line)
    if is_another or of_texts("steps").search(line):
        return False
    if is_quiet(text, match.end()) and not (is_said and of_texts("errors").search(text)):
        return False
    if not thing or near.is_known or re.search(r"[ (]|_[fb]wd|_cuda|_quant|nvidia-", thing):
        return True
    return is_of_field(text.replace(thing, ""))


def _speaker_in(line: str, section: str) -> tuple[tuple[str, str] | None, bool]:
    """Return who speaks in a line and what decides, and whether that is a package."""
    is_said = section in _SAID
    actor = _named("actors", line)
    if is_said and actor and actor[0] == "CUDA":  # what is said of CUDA is of its user
        actor = None
    is_packages = section != "acts" and (is_said or not actor)
    package = _named("packages", line) if is_packages else None
    return package or actor, package is not None


def _advice_of(act: KnownError, match: re.Match[str], names: dict[str, str]) -> str:
    """Return what to do: what the message says itself, and what an act has for what it names."""
    own = of_texts("advice").search(match.string[match.start() : match.end() + _NEAR])
    kinds = (f">.{kind}" for kind, word in {**match.groupdict(), **act.facts}.items() if word)
    cure = next((act.nouns[kind] for kind in kinds if kind in act.nouns), act.nouns[">"])
    says = f'do as it says: "{own[0].strip()}"' if own else ""
    return "; else ".join(filter(None, (says, cure.format(**names))))


_FRAME = re.compile(r'File "([^"\n]{1,300})", line')
_LEAST_ALIKE = 0.5  # of 1: the part of what a message says that another one must have


def closest(text: str) -> list[tuple[str, str]]:
    """Return id and title of what is nearest to a message of which nothing is known."""
    titles = {kind.id: kind.title for kind in table.kinds()}
    titles.update((one.id, one.title) for one in known_errors())
    said = {id: _words_of(title) for id, title in titles.items()}
    for one in known_errors():
        said[one.id] |= _words_of(f"{one.what} {[*map(literal_in, one.says)]} {one.status}")
    asked = _words_of(text[-_LONGEST_LINE:])
    rare = {
        word: log((len(said) + 1) / (1 + sum(word in words for words in said.values())))
        for word in asked
    }
    least = _LEAST_ALIKE * sum(rare.values())
    near = (
        (sum(rare[word] for word in words & asked) / (1 + len(words) / 200), id)
        for id, words in said.items()
    )
    best = sorted((-score, id) for score, id in near if score >= least > 0)
    return [(id, titles[id]) for _, id in best[:3]]


def _words_of(text: str) -> set[str]:
    """Return the words of a text, without what is added to a verb or for the plural."""
    words = of_texts("words").findall(text.lower())
    return {re.sub("(?<=...)(?:ing|ed|s)$", "", word) for word in words}
