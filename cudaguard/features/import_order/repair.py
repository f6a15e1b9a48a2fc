"""Modules and libraries that come before an import: opened or imported first."""

from __future__ import annotations

import sys
from functools import lru_cache
from opcode import EXTENDED_ARG, opmap

from cudaguard.core.repairs import MISSED, Done, Refused, WouldDo
from cudaguard.core.rule import actions_of
from cudaguard.hooks.caller import caller_frame, is_between, is_outermost, module_of, own_blocks
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import CodeType, FrameType
    from typing import Any

    from cudaguard.core.repairs import Outcome, Request


def preload(request: Request) -> Iterator[Outcome]:
    """Open what a rule wants opened before a module; only tell of it if that is not permitted."""
    # Of what a program needs on a GPU alone, which it may not use, nothing is told.
    acts, actions = request.permit.acts, actions_of(request.rule, "preload")
    files = [file for one in actions if acts or names_file(one) for file in _wanted(one)]
    yield from opened_first(request, tuple(dict.fromkeys(files)))


def opened_first(request: Request, files: tuple[str, ...]) -> Iterator[Outcome]:
    """Open some files before a module; only tell of it if that is not permitted."""
    if not files:
        return
    if not request.permit.acts:
        from cudaguard.features.import_order import findings

        yield WouldDo(findings.left_to_chance(request.rule, request.name, files, request.where))
        return
    from cudaguard.system.preload import open_all

    opened, error = open_all(files)
    for file in opened:
        yield Done(file, f"loaded before {request.name}")
    if error is not None:
        from cudaguard.core.findings import not_preloaded

        yield Refused(not_preloaded(request.rule, request.name, error), cause=error)


def load_installed(request: Request, missing: str) -> Iterator[Outcome]:
    """Open what a library was refused for, and what that needs, from where it is installed.

    `missing`: what the loader has not found. Empty: it finds one that is too old, and a newer one
    that is installed has what is missing.
    """
    # A program that catches the error has another way: it would compute on a GPU instead of it. And
    # it may try again and again.
    if not (request.permit.acts and ends_program()):
        return
    from cudaguard.system.memory_copies import keep_apart
    from cudaguard.system.newer_copies import newer_than_found
    from cudaguard.system.preload import missing_with_needs, open_all

    path = request.path or ""
    files = missing_with_needs(missing, path) if missing else newer_than_found(path)
    why = "which does not find it" if missing else "which finds an older copy first"
    for file in open_all(files)[0]:
        yield Done(file, f"loaded for {request.name}, {why}")
    how = "" if missing or files else keep_apart(path, is_refused=True)
    if how:
        yield Done(request.name, f"{how}, which lacks what it needs")


def check_already_loaded(request: Request) -> Iterator[Outcome]:
    """Yield MISSED if a library that the rule wants first is not the one in the process."""
    from cudaguard.system.preload import installed_files, is_mapped

    actions = actions_of(request.rule, "preload")
    named = (action["preload"] for action in actions if names_file(action))
    if any(not is_mapped(file) for pattern in named for file in installed_files(pattern)):
        yield MISSED  # type: ignore[misc]  # a word of this moment alone
    elif request.permit.acts:  # what is needed on a GPU alone, at a later call
        yield from preload(request)


def names_file(action: Mapping[str, Any]) -> bool:
    """Return True if it names the library to be opened, and False for what is looked for."""
    return "/" in action.get("preload", "") and not action.get("dependencies")


def _wanted(action: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the files that an action would have opened."""
    from cudaguard.system import preload as files

    library = action["preload"]
    if names_file(action):
        return files.not_mapped(files.installed_files(library))
    # Without a driver a plug-in that cannot be loaded is the lesser evil: some crash when they are.
    if not files.has_driver():
        return ()
    return files.unmet_needs(library) if action.get("dependencies") else files.unfound(library)


# --- a module that has the libraries which an extension names -------------------------------------


def import_provider(request: Request, needed: tuple[str, ...]) -> Iterator[Outcome]:
    """Import the module that has the libraries which an extension names."""
    from cudaguard.core.findings import prerequisite_failed
    from cudaguard.core.prerequisites import import_first, is_installed
    from cudaguard.features.import_order import findings

    rule, provider = request.rule, request.rule.watch[0]
    if not request.permit.acts:
        for library in needed if is_installed(provider) else ():
            finding = findings.not_provided(rule, request.name, library, request.where)
            yield WouldDo(finding, about=library)
        return
    outcome = import_first(provider)
    if isinstance(outcome, BaseException):
        finding = prerequisite_failed(rule.id, provider, request.name, outcome)
        yield Refused(finding, cause=outcome)
    elif outcome:
        yield Done(provider, f"imported before {request.name}")


# --- Would an error that is raised now end the program? -------------------------------------------
# Read from the code of the frames that are running, and from its tables in Python 3.11 and later:
# CPython's ``InternalDocs/exception_handling.md``.

# They catch any error to show it to the user, for whom it is the end.
_SHOW_ERRORS = ("IPython", "ipykernel", "_pytest", "pluggy", "unittest", "multiprocessing")
_LONGEST_ENTRY = 10  # bytes of code from a call of __enter__ to the body of its `with`


def ends_program() -> bool:
    """Return True if an error that is raised here surely ends the program.

    Where code in C imports modules, it may catch what comes of that: then False, as in any doubt.
    """
    frame: FrameType | None = caller_frame()
    while frame is not None:
        if module_of(frame).partition(".")[0] in _SHOW_ERRORS:
            return True
        outer = frame.f_back
        if is_between(frame):
            if _is_import_from_c(frame):
                return False
        elif _catches(frame.f_code, frame.f_lasti):
            return False
        elif outer is None:
            return is_outermost(frame)
        frame = outer
    return False


def _is_import_from_c(frame: FrameType) -> bool:
    """Return True if no import statement, and no call in Python, is behind an import."""
    outer = frame.f_back
    if frame.f_code.co_name != "_find_and_load" or outer is None:
        return False
    if outer.f_code.co_name == "_call_with_frames_removed":
        outer = outer.f_back or outer
    return is_between(outer) and outer.f_code.co_name not in ("_gcd_import", "_handle_fromlist")


@lru_cache(64)  # who has caught an error may well try again
def _catches(code: CodeType, at: int) -> bool:
    """Return True if a handler around an instruction may keep an error."""
    if sys.version_info < (3, 11):
        return _may_catch(code, at)
    entries, raw = list(_entries(code)), code.co_code

    def handler_of(place: int) -> tuple[int, int]:
        found = [(start, target) for start, end, target in entries if start <= place < end]
        return found[0] if found else (0, 0)

    seen = set()
    start, handler = handler_of(at)
    while handler and handler not in seen:
        seen.add(handler)
        if raw[handler] == opmap["PUSH_EXC_INFO"]:
            if raw[handler + 2] == opmap["WITH_EXCEPT_START"]:
                # The ``with`` of a `guard()` keeps no error.
                if not any(
                    block_code is code and 0 < start - entered <= _LONGEST_ENTRY
                    for block_code, entered in own_blocks
                ):
                    return True
            else:
                # A clause that ends without raising takes the error away: nothing is raised then.
                _, cleanup = handler_of(handler)
                for place in range(handler, max(cleanup, handler), 2):
                    is_over = raw[place] == opmap["POP_EXCEPT"]
                    if is_over and raw[place + 2] != opmap["RERAISE"]:
                        return True
                if cleanup < handler:
                    return True
        start, handler = handler_of(handler)
    return False


def _may_catch(code: CodeType, at: int) -> bool:  # before Python 3.11
    """Return True if a ``try`` or ``with`` that is not over may keep an error."""
    opens = [opmap[name] for name in ("SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH")]
    raw, jump, unit = code.co_code, 0, 1 if sys.version_info < (3, 10) else 2
    for place in range(0, at, 2):
        jump = jump << 8 | raw[place + 1]
        handler = place + 2 + jump * unit
        # What no clause takes away is raised again.
        is_around = raw[place] in opens and at < handler and (code, place) not in own_blocks
        if is_around and opmap["POP_EXCEPT"] in raw[handler::2]:
            return True
        jump = jump if raw[place] == EXTENDED_ARG else 0
    return False


def _entries(code: CodeType) -> Iterator[tuple[int, int, int]]:
    """Yield first instruction, end, and handler of the ranges of an exception table."""
    numbers = _numbers(code.co_exceptiontable)  # type: ignore[attr-defined]  # 3.11
    for start in numbers:
        length, target, _ = next(numbers), next(numbers), next(numbers)
        yield start * 2, (start + length) * 2, target * 2


def _numbers(table: bytes) -> Iterator[int]:
    number = 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:  # the last part of this one
            yield number
            number = 0
