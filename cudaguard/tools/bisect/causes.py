"""Causes that no order of imports changes, seen from how one run failed.

Conservative: what may depend on what was loaded before (a symbol that is not defined, a crash in a
library, a wait in a package) is no such cause, and is searched for by trying orders.
"""

from __future__ import annotations

import os
import re

from cudaguard.core.passing_errors import explain_text, known_errors
from cudaguard.tools.bisect import cause_messages as wording
from cudaguard.tools.bisect.trials import RUNNER
from cudaguard.tools.run.causes import Cause, of_death, of_wait
from cudaguard.tools.run.faults import dumps_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.tools.bisect.trials import Try

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_DISK = re.compile(r"OSError: \[Errno (?:28|122)\] (.+)")
_USAGE = re.compile(r"^\S.*?: error: (.+)$", re.MULTILINE)
_THREAD = re.compile(r"^(?=(?:Current t|T)hread 0x)", re.MULTILINE)
_BAD_USAGE = 2  # status of argparse


def missing_module(tried: Try) -> str:
    """Return the module that a run did not find; empty if it failed otherwise."""
    found = _NO_MODULE.match(tried.failure.error) if tried.failure is not None else None
    return found[1] if found else ""


def cause_of(tried: Try, path: Sequence[str], program: str) -> Cause | None:
    """Return why a run failed if no order of imports changes that; None if one may.

    Args:
        tried: The run.
        path: Folders in which it finds modules.
        program: The program and its arguments as a shell takes them; empty for imports alone.
    """
    failure, errors = tried.failure, tried.ended.errors
    if failure is None:
        return None
    if failure.kind == "hang":
        return _of_hang(errors, program, tried.ended.seconds)
    if failure.kind == "signal":
        dumps = [dump for dump in dumps_in(errors) if dump.what]
        return of_death(dumps[-1], failure.signal, program) if dumps else None
    if failure.error:
        return _of_error(failure.error, path, program)
    return _of_usage(errors, program) if failure.status == _BAD_USAGE else None


def _of_error(error: str, path: Sequence[str], program: str) -> Cause | None:
    missing, disk = _NO_MODULE.match(error), _DISK.match(error)
    if missing:
        return _of_missing(missing[1], error, path, program)
    if disk:
        return Cause("", wording.no_space(disk[1]), (error,), wording.MAKE_SPACE, "df -h")
    finding = explain_text(error)
    if finding is not None and any(
        known.any_order for known in known_errors() if known.id == finding.id
    ):
        command = wording.without_slots(finding.command, finding.id, program)
        return Cause(finding.id, finding.what, (error,), finding.remedy, command)
    if error.partition(":")[0].endswith("MemoryError"):
        return Cause("", wording.no_memory(), (error,), wording.SAVE_MEMORY, "free -h; ulimit -v")
    return None


def _of_missing(name: str, error: str, path: Sequence[str], program: str) -> Cause | None:
    """Return the cause if a module is nowhere; one whose package is there may need another."""
    from difflib import get_close_matches
    from importlib.machinery import PathFinder
    from pkgutil import iter_modules

    top = name.partition(".")[0]
    try:
        if PathFinder.find_spec(top, list(path)) is not None:
            return None
        near = get_close_matches(top, [module.name for module in iter_modules(list(path))], 1)
    except Exception:  # what is on the path is not ours
        return None
    folder = _folder_with(top)
    remedy = wording.where_it_is(name, folder) if folder else wording.install(name, near)
    return Cause(
        "", wording.no_module(top), (error,), remedy, wording.find_module(folder, program)
    )  # fmt: skip


def _folder_with(top: str) -> str:
    """Return a folder near the current one that has a module of that name, else empty."""
    here = os.getcwd()
    above = [here, os.path.dirname(here), os.path.dirname(os.path.dirname(here))]
    for folder in [os.path.join(one, inside) for one in above for inside in ("", "src", "lib")]:
        place = os.path.join(folder, top)
        if os.path.isfile(f"{place}.py") or os.path.isfile(os.path.join(place, "__init__.py")):
            return os.path.normpath(folder)
    return ""


def _of_usage(errors: str, program: str) -> Cause | None:
    said = _USAGE.findall(errors)
    if not program or not said or not re.search(r"^usage: ", errors, re.MULTILINE):
        return None
    what, command = wording.bad_usage(said[-1]), wording.help_of(program)
    return Cause("", what, (said[-1],), wording.GIVE_ARGUMENTS, command)


def _of_hang(errors: str, program: str, seconds: float) -> Cause | None:
    """Return the cause if all threads wait for each other."""
    if "Traceback (most recent call last)" in errors:  # a thread that was to go on has failed
        return None
    parts = _THREAD.split(errors)[1:]
    threads = [dump.frames for part in parts for dump in dumps_in(part)[:1]]
    return of_wait(threads, program, seconds, RUNNER)
