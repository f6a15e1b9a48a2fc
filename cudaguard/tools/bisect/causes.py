"""Causes that no order of imports changes, seen from how one run failed.

Conservative: what may depend on what was loaded before (a symbol that is not defined, a crash in a
library, a wait in a package) is no such cause, and is searched for by trying orders.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from cudaguard.core.passing_errors import explain_text, known_errors
from cudaguard.tools.bisect import cause_messages as wording
from cudaguard.tools.bisect.own_code import OwnSource, is_own, is_standard
from cudaguard.tools.bisect.trials import RUNNER
from cudaguard.tools.run.faults import dumps_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.tools.bisect.trials import Try

    Frame = tuple[str, int, str]

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_DISK = re.compile(r"OSError: \[Errno (?:28|122)\] (.+)")
_USAGE = re.compile(r"^\S.*?: error: (.+)$", re.MULTILINE)
_THREAD = re.compile(r"^(?=(?:Current t|T)hread 0x)", re.MULTILINE)
_BAD_USAGE = 2  # status of argparse
# Below a call of the user's own there may be these, and nothing else.
_FOREIGN_CALL = re.compile(r"ctypes[/\\]\w+\.py$")
_OPENS = ("__init__", "LoadLibrary", "__getattr__", "__getitem__")
_WAITING = ("threading.py", "queue.py", "_base.py", "thread.py")  # the last two: of futures
_AROUND = (*_WAITING, "contextlib.py", "runpy.py")
_FUTURES = os.path.join("concurrent", "futures")


class Cause(NamedTuple):
    """Why a run failed, where no order of imports is to blame.

    Args:
        id: The id that `explain` knows; empty if it knows none.
        what: What is wrong, in a sentence.
        evidence: What shows it.
        remedy: What to do.
        command: What to run next.
    """

    id: str
    what: str
    evidence: tuple[str, ...]
    remedy: str
    command: str

    def is_like(self, other: Cause | None) -> bool:
        """Return True if another run has failed for the same cause."""
        return other is not None and (self.id, self.what) == (other.id, other.what)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {**self._asdict(), "evidence": list(self.evidence)}


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
        return _of_wait(errors, program, tried.ended.seconds)
    if failure.kind == "signal":
        return _of_death(errors, failure.signal, program)
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
    command = f"{wording.python()} {program} --help"
    return Cause("", wording.bad_usage(said[-1]), (said[-1],), wording.GIVE_ARGUMENTS, command)


# --- where it died, or waits ----------------------------------------------------------------------


def _of_death(errors: str, signal: str, program: str) -> Cause | None:
    """Return the cause if it died in a call through ctypes, or of Python's own, in user's code."""
    dumps = [dump for dump in dumps_in(errors) if dump.what]
    if not dumps or not dumps[-1].thread or _is_importing(dumps[-1].frames):
        return None
    frames = list(dumps[-1].frames)
    while frames and _FOREIGN_CALL.search(frames[0][0]) and is_standard(frames[0][0]):
        if frames.pop(0)[2] in _OPENS:
            return None
    if not frames or not is_own(frames[0][0]):
        return None
    file, line, function = frames[0]
    source = OwnSource(file)
    if not source.calls_only_own(line):
        return None
    what = wording.died_in_own_call(signal, _place(file, line, function))
    shown = f"{_place(file, line, function)}: {source.text(line)}"
    return Cause("", what, (shown,), wording.CHECK_CALL, wording.debugger(program))


def _of_wait(errors: str, program: str, seconds: float) -> Cause | None:
    """Return the cause if all threads wait for locks, queues or threads of the program's own."""
    if "Traceback (most recent call last)" in errors:  # a thread that was to go on has failed
        return None
    threads = [
        dump.frames
        for part in _THREAD.split(errors)[1:]
        for dump in dumps_in(part)[:1]
    ]  # fmt: skip
    if not threads or not all(_waits(frames) for frames in threads):
        return None
    places = [next((frame for frame in frames if is_own(frame[0])), None) for frames in threads]
    own = [place for place in places if place is not None]
    if not own:
        return None
    shown = tuple(f"{_place(*place)}: {OwnSource(place[0]).text(place[1])}" for place in own)
    return Cause(
        "", wording.waits(len(threads), _place(*own[-1])), shown, wording.RELEASE,
        wording.show_stacks(program, seconds),
    )  # fmt: skip


def _waits(frames: Sequence[Frame]) -> bool:
    """Return True if a thread is in code of the user's and of locks, and waits for one there."""
    if not frames or _is_importing(frames):
        return False
    for file, _, _ in frames:
        is_runner = file == RUNNER or file.startswith("<frozen runpy")
        if not (is_runner or is_own(file) or (is_standard(file) and _is_lock_file(file, _AROUND))):
            return False
    file, line, _ = frames[0]
    if is_own(file):
        return OwnSource(file).waits_for_lock(line)
    return is_standard(file) and _is_lock_file(file, _WAITING)


def _is_lock_file(file: str, names: Sequence[str]) -> bool:
    folder, name = os.path.split(file)
    return name in names and (
        folder == os.path.dirname(os.__file__) or folder.endswith(_FUTURES)
    )  # fmt: skip


def _is_importing(frames: Sequence[Frame]) -> bool:
    return any("importlib" in file for file, _, _ in frames)


def _place(file: str, line: int, function: str) -> str:
    here = os.getcwd() + os.sep
    return f"{file[len(here) :] if file.startswith(here) else file}:{line} in {function}"
