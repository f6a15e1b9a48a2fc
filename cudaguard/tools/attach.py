"""Show what a running Python process waits for, and the processes below it.

A process under `cudaguard run` writes down where it is when it gets a signal; others are read by
py-spy, if it is installed. The process goes on.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from time import monotonic, sleep

from cudaguard.core.record import FAULTS
from cudaguard.files import read_start
from cudaguard.files.text import printable_data
from cudaguard.system.processes import descendants, handles, state
from cudaguard.tools.common import BROKEN, OK, UsageError, add_verbose, note, show
from cudaguard.tools.layout import Page
from cudaguard.tools.run.launch import PYTHON, Launch, program_of
from cudaguard.tools.run.record import FaultDump, Thread, read_faults
from cudaguard.tools.run.supervise import DUMP_SIGNAL, IS_SUPPORTED, ProgramEnd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

_ANSWER, _SPYING = 3.0, 60.0  # seconds that a process gets to write, py-spy to read
_PAUSE = 0.05  # seconds in which a process that writes writes more
_MAPS = 1 << 22  # bytes
_STATES = {"R": "runs", "T": "is stopped", "t": "is stopped", "D": "is stuck in the kernel"}
# System calls that wait for a descriptor, their first argument: read, accept, recvfrom, recvmsg.
_READS = {"x86_64": (0, 43, 45, 47, 288), "aarch64": (63, 202, 207, 212, 242)}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = (
        "Example: cudaguard attach 4711. Exit status: 0 it is told, 2 there is no such process, "
        "3 it could not be read."
    )
    parser.add_argument("pid", metavar="PID", type=int, help="the process")
    add_verbose(parser)


def execute(args: Namespace) -> int:
    """Ask the processes, and show what they say."""
    from cudaguard.tools.run.crash import Report, write

    pid: int = args.pid
    if not IS_SUPPORTED:
        raise UsageError("it is done on Linux only")
    doing = {one: state(one) for one in (pid, *descendants(pid))} if pid > 0 else {pid: ""}
    if doing[pid] in ("", "Z", "X"):
        raise UsageError(f"no process {pid} is running", command="pgrep -af python")
    if os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
        command = f"sudo {sys.executable} -m cudaguard attach {pid}"
        raise UsageError(f"process {pid} belongs to another user", command=command, status=BROKEN)
    # The names of processes (setproctitle) may stand where their environment was.
    files = {
        one: file
        for one in doing
        for file in _open_files(one)
        if os.path.basename(file) == f"{FAULTS}{one}"
    }
    dumps = _asked({one: file for one, file in files.items() if doing[one] not in "Tt"})
    problem: UsageError | None = None
    for one in doing:
        if one not in dumps and _is_python(one):
            try:
                dumps[one] = _spied(one)
            except UsageError as error:
                problem = problem or error
    if not dumps:
        what = f"process {pid} ({_name(pid)}) is no Python process"
        raise problem or UsageError(what, command="pgrep -af python")
    if problem:
        note("attach", str(problem), problem.command)
    about = next(one for one in doing if one in dumps)
    words = _words(about, "cmdline") or [""]
    report = Report(
        Launch(program_of(words[1:]), tuple(words), ""),
        ProgramEnd(about, 0, True, frozenset(), 0.0),
        os.path.dirname(files.get(about, "")),
        dumps={one: [dump] for one, dump in dumps.items()},
        doing=_STATES.get(doing[about], "waits"),
    )
    document = {**report.document(), "tool": "attach"}
    document["hints"] += _awaited(about)
    page = Page(sys.stdout, verbose=args.verbose)
    write(printable_data(document), page)
    show(str(page))
    return OK


def _asked(files: Mapping[int, str]) -> dict[int, FaultDump]:
    """Have processes under `cudaguard run` write down where they are; return what they wrote."""
    waiting: dict[int, tuple[int, int]] = {}  # the size of the file before, and now
    for pid, path in files.items():
        with suppress(OSError):
            if handles(pid, DUMP_SIGNAL):
                waiting[pid] = os.path.getsize(path), 0
                os.kill(pid, DUMP_SIGNAL)
    found: dict[int, FaultDump] = {}
    deadline = monotonic() + _ANSWER
    while waiting and monotonic() < deadline:
        sleep(_PAUSE)
        for pid, (before, last) in list(waiting.items()):
            now = os.path.getsize(files[pid]) if os.path.exists(files[pid]) else before
            waiting[pid] = before, now
            if before < now == last:
                del waiting[pid]
                found.update((pid, dump) for dump in read_faults(files[pid])[-1:])
    return found


def _spied(pid: int) -> FaultDump:
    """Return what py-spy reads of a process.

    Raises:
        UsageError: It cannot, or is not installed.
    """
    import json
    import subprocess
    from shutil import which

    folders = (os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))
    tool = which("py-spy", path=os.pathsep.join(folders))
    if tool is None:
        why = f"process {pid} is not under cudaguard run, and py-spy is not installed"
        command = f"{sys.executable} -m pip install 'cudaguard[attach]'"
        raise UsageError(why, command=command, status=BROKEN)
    try:
        asked = (tool, "dump", "--json", "--pid", str(pid))
        done = subprocess.run(asked, capture_output=True, timeout=_SPYING, check=False)
        if done.returncode:
            raise ValueError(done.stderr.decode("utf-8", "replace").partition("\n")[0])
        threads = []
        for one in json.loads(done.stdout):
            frames = [(f["filename"], f["line"], f["name"]) for f in one["frames"]]
            threads.append(Thread(one["thread_id"], one["thread_name"] or "", frames))
            if one["os_thread_id"] == pid:
                threads.insert(0, threads.pop())
        own = threads.pop(0)
    except (OSError, LookupError, TypeError, ValueError, subprocess.TimeoutExpired) as error:
        why = f"py-spy cannot read process {pid}: {error}"
        raise UsageError(why, status=BROKEN) from error
    return FaultDump("", own.frames, (), own.id, tuple(threads), name=own.name)


def _is_python(pid: int) -> bool:
    """Return True if a process is Python, as far as its files tell, and not `cudaguard run`."""
    words = [one for one in program_of(_words(pid, "cmdline")[1:]).words if one != "-m"]
    if [*map(os.path.basename, words[:2])] in (["cudaguard", "run"], ["cudaguard", "trace"]):
        return False
    with suppress(OSError):
        is_named = PYTHON.match(os.path.basename(os.readlink(f"/proc/{pid}/exe")))
        return bool(is_named) or b"libpython" in read_start(f"/proc/{pid}/maps", _MAPS)
    return False


def _awaited(pid: int) -> list[str]:
    """Return from what the main thread reads, and who else has that open, if it waits for it."""
    try:
        number, first = _words(pid, "syscall", " ")[:2]
        file = os.readlink(f"/proc/{pid}/fd/{int(first, 16)}")
    except (OSError, ValueError):  # it runs, or we may not look
        return []
    if int(number) not in _READS.get(os.uname().machine, ()):
        return []
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != pid]
    others = [f"process {one} ({_name(one)})" for one in pids if file in _open_files(one)]
    who = (
        f"{Page().listed(others, option='') or 'no other process'} ha{'ve' if others[1:] else 's'}"
    )
    return [f"the main thread reads from {file}, descriptor {int(first, 16)}, which {who} open"]


def _open_files(pid: int) -> list[str]:
    found: list[str] = []
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def _name(pid: int) -> str:
    return "".join(_words(pid, "comm", "\n"))


def _words(pid: int, file: str, end: str = "\0") -> list[str]:
    with (
        suppress(OSError),
        open(f"/proc/{pid}/{file}", encoding="utf-8", errors="replace") as opened,
    ):
        return opened.read().rstrip(end).split(end)
    return []
