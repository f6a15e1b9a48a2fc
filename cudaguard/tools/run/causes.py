"""Causes that no order of imports changes: a call of the program's own, a wait for itself, a fork.

Conservative: what may depend on what was loaded before (a crash in a library, a wait in a package)
is no such cause.
"""

from __future__ import annotations

import os
import re
import sys
from typing import NamedTuple

from cudaguard.tools.run.own_code import OwnSource, is_own, is_standard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.system.processes import ForkedWait
    from cudaguard.tools.run.record import FaultDump, Frames

# Below a call of the user's own there may be these, and nothing else.
_FOREIGN_CALL = re.compile(r"ctypes[/\\]\w+\.py$")
_OPENS = ("__init__", "LoadLibrary", "__getattr__", "__getitem__")
_WAITING = ("threading.py", "queue.py", "_base.py", "thread.py")  # the last two: of futures
_AROUND = (*_WAITING, "contextlib.py", "runpy.py")
_FUTURES = os.path.join("concurrent", "futures")
_CHECK_CALL = "check argtypes, restype and the pointers of that call"
_RELEASE = "take locks in one order everywhere, and release each before waiting for a thread"
_FORK_BEFORE = (
    "start the workers with multiprocessing's spawn or forkserver, or before the first parallel "
    "computation; or limit them to one thread (torch.set_num_threads(1), threadpoolctl)"
)


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

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {**self._asdict(), "evidence": list(self.evidence)}


def of_death(dump: FaultDump, signal: str, program: str) -> Cause | None:
    """Return the cause if it died in a call through ctypes, or of Python's own, in user's code.

    Args:
        dump: What was written down when it died.
        signal: The name of the signal.
        program: The program and its arguments as a shell takes them.
    """
    if not dump.thread or _is_importing(dump.frames):
        return None
    frames = list(dump.frames)
    while frames and _FOREIGN_CALL.search(frames[0][0]) and is_standard(frames[0][0]):
        if frames.pop(0)[2] in _OPENS:
            return None
    if not frames or not is_own(frames[0][0]):
        return None
    file, line, function = frames[0]
    source = OwnSource(file)
    if not source.calls_only_own(line):
        return None
    place = _place(file, line, function)
    what = f"{signal} comes from a call that the program itself makes, at {place}."
    debugger = f"gdb -batch -ex run -ex bt --args {python()} {program}".rstrip()
    return Cause("", what, (f"{place}: {source.text(line)}",), _CHECK_CALL, debugger)


def of_wait(threads: Sequence[Frames], program: str, seconds: float) -> Cause | None:
    """Return the cause if all threads wait for locks, queues or threads of the program's own.

    Args:
        threads: The frames of each, innermost first; the main thread's last.
        program: The program and its arguments as a shell takes them.
        seconds: How long it was waited for.
    """
    if not threads or not all(_waits(frames) for frames in threads):
        return None
    places = [next((frame for frame in frames if is_own(frame[0])), None) for frames in threads]
    own = [place for place in places if place is not None]
    if not own:
        return None
    shown = tuple(f"{_place(*place)}: {OwnSource(place[0]).text(place[1])}" for place in own)
    place = _place(*own[-1])
    what = f"The only thread waits for a lock or a queue of the program, at {place}."
    if len(threads) > 1:
        what = (
            f"All {len(threads)} threads wait for locks or queues of the program, the main one at "
            f"{place}."
        )
    stacks = f"cudaguard run --timeout {max(seconds, 1):.0f} {program}".rstrip()
    return Cause("", what, shown, _RELEASE, stacks)


def of_forks(waits: Sequence[ForkedWait], program: str) -> Cause | None:
    """Return the cause if forks wait for OpenMP's threads, which their parent alone has.

    Args:
        waits: What forks waited for.
        program: The program and its arguments as a shell takes them; empty if it is no Python's.
    """
    if not waits:
        return None
    first = waits[0]
    shown = (
        f"process {first.pid} has 1 thread, which waits in libgomp; process {first.parent}, which "
        f"forked it, has {first.threads}"
    )
    one = len(waits) == 1
    who = f"The forked process {first.pid} waits" if one else f"{len(waits)} forked processes wait"
    what = (
        f"{who} forever for OpenMP threads (libgomp) that only {'its' if one else 'their'} parent "
        "has."
    )
    command = f"OMP_NUM_THREADS=1 {python()} {program}" if program else ""
    return Cause("", what, (shown, first.library), _FORK_BEFORE, command)


def python() -> str:
    """Return the interpreter as one types it."""
    name = os.path.basename(sys.executable) or "python"
    return name if name.startswith("python") else "python"


def _waits(frames: Frames) -> bool:
    """Return True if a thread is in code of the user's and of locks, and waits for one there."""
    if not frames or _is_importing(frames):
        return False
    for file, _, _ in frames:
        is_runner = file.startswith("<frozen runpy")
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


def _is_importing(frames: Frames) -> bool:
    return any("importlib" in file for file, _, _ in frames)


def _place(file: str, line: int, function: str) -> str:
    here = os.getcwd() + os.sep
    return f"{file[len(here) :] if file.startswith(here) else file}:{line} in {function}"
