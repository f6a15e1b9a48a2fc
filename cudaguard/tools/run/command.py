"""Run a program under the guard from its first line, as ``python`` would run it.

The guard is up before any code of the program, in this process's child and in the Python processes
that it starts. Needs no change of the program and no ``.pth`` file. When the program dies of a
fault, a report says in which import or call, what was mapped, and what to try.
"""

from __future__ import annotations

import signal
from select import select
from time import time

from cudaguard.core.record import FAULTS, FOLDER_VARIABLE, JOURNAL
from cudaguard.core.reports import PREREQUISITE
from cudaguard.files import open_to_read, os
from cudaguard.files.layout import Page
from cudaguard.model import MODE_VARIABLE, TYPE_CHECKING
from cudaguard.system.processes import CANNOT_START, SIGKILL, oom_kills, state
from cudaguard.tools.common import UsageError, add_verbose, name_with_host, note
from cudaguard.tools.run import launch
from cudaguard.tools.run.record import RunRecord, faults_in, lines_in, read_events, read_faults
from cudaguard.tools.run.supervise import IS_SUPPORTED, flush, run_recorded

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cudaguard.tools.run.record import FaultDump
    from cudaguard.tools.run.story import Process
    from cudaguard.tools.run.supervise import ProgramEnd

_MOST_OF_JOURNAL = 1 << 23  # bytes: a hundred thousand events, two seconds of reading
_MOST_REPORTED = 10  # deaths in words
_LONGEST = 1000  # characters of one; a pipe that takes any takes 4096 bytes
# Seconds in which the program may end for that reason (a DataLoader looks every five), or a
# launcher the job of a rank: the report names the process then.
_HELD, _RANK_HELD = 10, 40
_REPAIRS = ("repair", PREREQUISITE)  # kinds of lines


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--mode", help="off, observe, warn, fix or strict (default: as configured)")
    told = "write how it ended to FILE, as JSON; %%h is the name of this host"
    parser.add_argument("--report", metavar="FILE", type=name_with_host, help=told)
    launch.configure(parser, "run", "; the report says where it was")
    add_verbose(parser, quiet="say nothing of what was repaired", config=True)
    parser.add_argument(
        "--exec", action="store_true",
        help="become the program instead of its parent: the guard is up, there is no report",
    )  # fmt: skip


def execute(args: Namespace) -> int:
    """Run the program and end as it does; on a usage error, return its status."""
    asked = [name for name in ("report", "timeout") if getattr(args, name)]
    if asked and (args.exec or not IS_SUPPORTED):
        reason = "--exec leaves nobody behind" if args.exec else "it is done on Linux only"
        raise UsageError(f"--{asked[0]}: {reason}")
    found, environment = launch.prepared(args, filter(None, [args.report]))
    is_below = os.path.isdir(os.environ.get(FOLDER_VARIABLE, ""))  # of a run that tells it all
    is_wanted = asked or (environment[MODE_VARIABLE] != "off" and not is_below)
    if IS_SUPPORTED and not args.exec and is_wanted:
        record, kills = RunRecord(), oom_kills()
        deaths = Deaths(record, kills)

        def tell(ended: ProgramEnd) -> None:
            report = None
            if ended.status or ended.is_late or args.report:
                from cudaguard.tools.run.crash import Report

                report = Report(found, ended, record.folder, kills, record.problem())
            deaths.finish(report.about if report else 0, ended.pid, quiet=args.quiet)
            if report:
                report.tell(args.report, verbose=args.verbose, with_arguments=args.with_arguments)

        return run_recorded(
            *("run", found.command, environment, record, tell),
            timeout=args.timeout, watch=deaths.watch,
        )  # fmt: skip
    flush()
    if os.name == "nt":  # exec there returns to the shell before the program has ended
        import subprocess

        return subprocess.call(found.command, env=environment)
    try:
        return os.execve(found.command[0], found.command, environment)
    except OSError as error:
        note("run", f"{found.command[0]}: {error.strerror}")
        return CANNOT_START


# --- Who died, while the program goes on ----------------------------------------------------------


class Deaths:
    """Tells of processes below the program that have died: of the first ten, then how many."""

    def __init__(self, record: RunRecord, kills: int) -> None:
        self._kills = kills  # of the kernel, before the program began
        self._folder = record.folder or os.devnull  # there is no file below that
        self._journal = os.path.join(self._folder, JOURNAL)
        self._seen = 0  # bytes of the journal
        self._processes: dict[int, Process] = {}
        self._count: dict[str, int] = {}  # how they died -> how many
        self._reported = 0
        self._dead: set[int] = set()
        # Process, when it is told and what: who waits for a reader, or for the end of the job.
        self._lines: list[tuple[int, float, str]] = []
        self._is_ending = False

    def watch(self, is_ending: bool, program: int, about: int = 0) -> None:
        """Tell who has died since the last time, but for the process that a report is `about`.

        A report tells of the end of the program itself; one that `is_ending` is asked to end now,
        and may kill what it has started.
        """
        self._dead.add(program)
        data, crashed = self._new(self._seen), self._crashed()
        # Most programs need no more than this look; a long record is read in parts.
        if crashed or b'"kind": "child"' in data or len(data) > _MOST_OF_JOURNAL // 2:
            from cudaguard.tools.run.story import add_event, processes_of

            self._seen += len(data)
            for line in lines_in(data):
                add_event(self._processes, line)
                if line.kind == "start" and line.pid != program:
                    self._dead.discard(line.pid)
                if line.kind == "child" and line.other in self._processes:
                    process = self._processes[line.other]
                    # Ray's raylet has reasons of its own, and says so; mpirun ends for its ranks.
                    is_sent = line.number("signal") == SIGKILL and line.pid != process.parent
                    if not is_sent or process.rank is not None or oom_kills() > self._kills >= 0:
                        self._add(process, about)
            for process in processes_of((), crashed).values():
                known = self._processes.get(process.pid, process)
                self._add(known._replace(signal=process.signal), about)
        self._is_ending |= is_ending
        for due in [line for line in self._lines if line[1] < time()]:
            if os.name == "nt" or select([], [2], [], 0)[1]:  # Windows takes sockets only
                self._lines.remove(due)
                note("run", due[2])

    def _crashed(self) -> dict[int, list[FaultDump]]:
        """Return the dumps of the dead, whose parent may be no Python (mpirun, Ray's raylet)."""
        return {
            pid: dumps
            for pid, dumps in faults_in(self._folder, skipped=self._dead).items()
            if any(dump.what for dump in dumps) and state(pid) in ("", "Z", "X")
        }

    def _new(self, start: int) -> bytes:
        """Return the lines of the journal from a place on."""
        try:
            file = open_to_read(self._journal, may_be_link=False)
            data = os.pread(file, _MOST_OF_JOURNAL, start)
            os.close(file)
        except OSError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def _add(self, process: Process, about: int) -> None:
        from cudaguard.tools.run.story import last_place, process_name, story_of

        # Who forks may have the kernel kill the fork at its own end, as celery does.
        is_asked = self._is_ending and process.signal in (SIGKILL, signal.SIGTERM)
        if not process.how or process.status or is_asked or process.pid in self._dead:
            return
        self._dead.add(process.pid)
        how = process.how.split()[-1].strip("()")  # the signal, or the error
        self._count[how] = self._count.get(how, 0) + 1
        if self._reported < _MOST_REPORTED and process.pid != about:
            self._reported += 1
            story = story_of(read_events(self._journal, _MOST_OF_JOURNAL), process.pid)
            dumps = read_faults(os.path.join(self._folder, f"{FAULTS}{process.pid}"))
            frames = next((dump.frames for dump in reversed(dumps) if dump.what), ())
            place = last_place(story, story.error.stack[::-1] if story.error else frames)
            lacks = f"; it was {process.lacks}" if process.signal and process.lacks else ""
            said = f"{process_name(process._asdict())} {process.how}{place}{lacks}."[:_LONGEST]
            held = _HELD if process.rank is None else _RANK_HELD
            self._lines.append((process.pid, time() + held, said))

    def finish(self, about: int, program: int, *, quiet: bool) -> None:
        """Tell how many have died, and what was repaired in a program without a report."""
        before, data = self._reported - len(self._lines), self._new(0)  # of those that were said
        self.watch(is_ending=False, program=program, about=about)
        for pid, _, said in self._lines:
            if pid != about:
                note("run", said)
        count = sum(self._count.values())
        if count > max(1, self._reported - before):  # else it has just been said
            how = ", ".join(f"{number:,} {words}" for words, number in self._count.items())
            note("run", f"{count:,} processes that the program had started died: {how}.")
        if not (quiet or about) and any(f'"kind": "{kind}"'.encode() in data for kind in _REPAIRS):
            faults: dict[str, str] = {}
            for line in read_events(self._journal, _MOST_OF_JOURNAL):
                if (done := line.repaired()) is not None:
                    by = f" ({done.rule})" if done.rule else ""
                    faults.setdefault(done.rule or done.subject, f"{done.done}{by}")
            shown = Page().listed([*faults.values()], option="")
            note("run", f"repaired {len(faults)} fault{'s'[: len(faults) > 1]}: {shown}")
