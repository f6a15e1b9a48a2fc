"""Show what a running Python process waits for, and the processes below it.

A process under `cudaguard run` writes down where it is when it gets a signal; others are read by
py-spy, if it is installed. The process goes on.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from time import monotonic, sleep

from cudaguard.core.record import DUMP_SIGNAL, FAULTS
from cudaguard.files import read_start
from cudaguard.files.layout import Page
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.processes import descendants, handles, state
from cudaguard.tools import common
from cudaguard.tools.run.launch import Launch, program_of
from cudaguard.tools.run.record import FaultDump, Thread, read_faults
from cudaguard.tools.run.supervise import IS_SUPPORTED, ProgramEnd

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

_ANSWER, _SPYING = 3.0, 60.0  # seconds that a process gets to write, py-spy to read
_PAUSE = 0.05  # seconds in which a process that writes writes more
_MOST = 1 << 22  # bytes of a file in /proc
_PYTHON = re.compile(r"/(lib)?(python|pypy)[\d.]*t?(\.so[\d.]*)?$")  # a mapped file
_STATES = {"R": "runs", "T": "is stopped", "t": "is stopped", "D": "is stuck in the kernel"}
# System calls that wait for a descriptor, their first argument: read, accept, recvfrom, recvmsg.
_READS = {"x86_64": (0, 43, 45, 47, 288), "aarch64": (63, 202, 207, 212, 242)}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("pid", metavar="PID", type=int, help="the process")
    common.add_format(parser)


def execute(args: Namespace) -> int:
    """Ask the processes, and show what they say."""
    from cudaguard.tools.run.crash import Report, write

    pid: int = args.pid
    if not IS_SUPPORTED:
        raise common.UsageError("it is done on Linux only")
    known = (pid, *descendants(pid)) if pid > 0 else ()
    doing = {pid: state(pid) for pid in known if pid != os.getpid()}  # it may be our own shell
    if doing.get(pid, "") in ("", "Z", "X"):
        raise common.UsageError(f"no process {pid} is running", command="pgrep -af python")
    if os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
        what = f"process {pid} belongs to another user"
        command = f"(cd / && sudo {sys.executable} -m cudaguard attach {pid})"
        raise common.UsageError(what, command=command, status=common.BROKEN)
    # The names of processes (setproctitle) may stand where their environment was.
    opened = ((pid, file) for pid in doing for file in _open_files(pid))
    files = {each: file for each, file in opened if os.path.basename(file) == f"{FAULTS}{each}"}
    dumps = _asked({each: file for each, file in files.items() if doing[each] not in "Tt"})
    problem: common.UsageError | None = None
    for each in doing:
        if each not in dumps and _is_python(each):
            try:
                dumps[each] = _spied(each)
            except common.UsageError as error:
                problem = problem or error
    if not dumps:
        what = f"process {pid} ({_name(pid)}) is not a Python process"
        raise problem or common.UsageError(what, command="pgrep -af python")
    if problem:
        common.note("attach", str(problem), problem.command)
    about = next(pid for pid in doing if pid in dumps)
    words = _words(about, "cmdline") or [""]
    report = Report(
        Launch(program_of(words[1:]), tuple(words), ""),
        ProgramEnd(about, 0, True),
        os.path.dirname(files.get(about, "")),
        dumps={each: [dump] for each, dump in dumps.items()},
        doing=_STATES.get(doing[about], "waits"),
    )
    is_json = args.format == "json"
    document = {**report.document(with_arguments=not is_json), "tool": "attach"}
    document["hints"] += _awaited(about)
    document["ended"] = {**document["ended"], "kind": "running", "status": None}
    text = common.laid_out(document, write, sys.stdout, verbose=args.verbose)
    common.show(common.json_text(common.shareable(document)) if is_json else text)
    return common.OK


def _asked(files: Mapping[int, str]) -> dict[int, FaultDump]:
    """Have processes under `cudaguard run` write down where they are; return what they wrote."""
    asked = {pid: file for pid, file in files.items() if handles(pid, DUMP_SIGNAL)}
    before = {pid: read_faults(file) for pid, file in asked.items()}
    last, found = before.copy(), dict[int, FaultDump]()
    for pid in asked:
        with suppress(OSError):  # it has ended
            os.kill(pid, DUMP_SIGNAL)
    deadline = monotonic() + _ANSWER
    while found.keys() != asked.keys() and monotonic() < deadline:
        sleep(_PAUSE)
        for pid, file in asked.items():
            dumps, last[pid] = last[pid], read_faults(file)
            if before[pid] != dumps == last[pid] and dumps:
                found[pid] = dumps[-1]
    return found


def _spied(pid: int) -> FaultDump:
    """Return what py-spy reads of a process; a `UsageError` if it cannot, or is not installed."""
    import json
    import subprocess
    from shutil import which

    folders = (os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath))
    if (tool := which("py-spy", path=os.pathsep.join(folders))) is None:
        why = f"process {pid} can only be read by py-spy, which is not installed"
        command = f"{sys.executable} -m pip install py-spy"
        raise common.UsageError(why, command=command, status=common.BROKEN)
    try:
        asked = (tool, "dump", "--json", "--pid", str(pid))
        done = subprocess.run(asked, capture_output=True, timeout=_SPYING, check=False)
        if done.returncode:
            raise ValueError(done.stderr.decode("utf-8", "replace").partition("\n")[0])
        threads = []
        for thread in json.loads(done.stdout):
            frames = [(f["filename"], f["line"], f["name"]) for f in thread["frames"]]
            threads.append(Thread(thread["thread_id"], thread["thread_name"] or "", frames))
            if thread["os_thread_id"] == pid:
                threads.insert(0, threads.pop())
        own = threads.pop(0)
    except (OSError, LookupError, TypeError, ValueError, subprocess.TimeoutExpired) as error:
        why = f"py-spy cannot read process {pid}: {error}"
        raise common.UsageError(why, status=common.BROKEN) from error
    return FaultDump("", own.frames, (), own.id, tuple(threads), name=own.name)


def _is_python(pid: int) -> bool:
    """Return True if a process is Python, as far as its files tell, and not `cudaguard run`."""
    words = [word for word in program_of(_words(pid, "cmdline")[1:]).words if word != "-m"]
    if [*map(os.path.basename, words[:2])] in (["cudaguard", "run"], ["cudaguard", "trace"]):
        return False
    return any(_PYTHON.search(line) for line in _words(pid, "maps", "\n"))


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
    others = [f"process {pid} ({_name(pid)})" for pid in pids if file in _open_files(pid)]
    who = f"{Page().listed(others, option='')} ha{'ve' if others[1:] else 's'} it open too"
    where = f"{file}, descriptor {int(first, 16)}: {who if others else 'nobody else has it open'}"
    return [f"the main thread reads from {where}"]


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
    try:
        data = read_start(f"/proc/{pid}/{file}", _MOST)
    except OSError:  # it has ended, or we may not
        return []
    return data.decode("utf-8", "replace").rstrip(end).split(end)
