"""Errors of the program that leave a guarded block or end it: what they mean is noted on them.

No note is added where an error is raised: the program may handle it, and doctest,
``pytest.raises(match="...$")`` and ``format_exception_only()[-1]`` take a note for its last words.
"""

from __future__ import annotations

import sys
from functools import cache

from cudaguard.core.general_reading import closest_in, general_in
from cudaguard.core.known_errors import (
    FILE,
    VAGUE,
    Explainer,
    Hit,
    KnownError,
    best_in,
    known_in,
    text_of,
)
from cudaguard.core.table import table
from cudaguard.errors import CudaGuardError
from cudaguard.files import own_errors, program_errors
from cudaguard.hooks.barrier import ON_PURPOSE, print_instead
from cudaguard.hooks.caller import caller_frame
from cudaguard.system import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
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
    """Return what an error means, or one that led to it; None if nothing is known of them.

    What is vague of the error gives way to what is certain of one that led to it. With
    `with_context` those count that it was raised in the handling of, unless the program has said
    that they do not matter (``from None``).
    """
    vague: Finding | None = None
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        hit = best_in(f"{type(current).__name__}: {text_of(current)}", known_errors())
        if hit is not None and hit.known.certainty > VAGUE:
            return _said(hit, is_guarded=is_guarded)
        vague = vague or (None if hit is None else _said(hit, is_guarded=is_guarded))
        led = None if current.__suppress_context__ or not with_context else current.__context__
        current = current.__cause__ or led
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
    entry = error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if not code.co_filename.startswith("<frozen importlib"):
            found.append((code.co_filename, entry.tb_lineno, code.co_name))
        entry = entry.tb_next
    return found[-_DEEPEST:]


def _note(reporter: Reporter, error: BaseException, *, is_printed: bool) -> None:
    if isinstance(error, CudaGuardError):  # ours say it themselves
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
    return any(str(one).startswith("cudaguard ") for one in getattr(error, "__notes__", ()))
