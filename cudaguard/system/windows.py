"""Windows: processes that end with this one and tell how they end; which DLLs this one has.

Source: Microsoft, "Job Objects", ``JOBOBJECT_ASSOCIATE_COMPLETION_PORT``, "NTSTATUS values".
"""

from __future__ import annotations

import ctypes
import subprocess
from contextlib import suppress
from tempfile import TemporaryFile
from time import monotonic

from cudaguard.model import TYPE_CHECKING
from cudaguard.system.processes import CRASHES_OF_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_WORDS = 36 if ctypes.sizeof(ctypes.c_void_p) == 8 else 28  # of 32 bits, in the limits of a job
_LIMITS, _PORT = 9, 7  # kinds of what a job is told
_KILL_ON_CLOSE, _NO_DIALOG = 0x2000, 0x400
_BEGUN, _ENDED, _CRASHED = 6, 7, 8  # what a job tells of a process
_SUSPENDED, _MAY_BE_ASKED = 4, 0x1000  # how a process is started, and opened


def end_of(status: int) -> int:
    """Return an exit status; its negative, as that of a signal, if it is that of a crash."""
    return -status if status in CRASHES_OF_WINDOWS else status


class Job:
    """A group of processes, which end when this process ends, however it does.

    A quiet one shows no dialog for a process that crashes, and leaves no dump.
    """

    def __init__(self, *, is_quiet: bool = False) -> None:
        windll: Any = ctypes.WinDLL  # type: ignore[attr-defined,unused-ignore]  # on Windows only
        self._api: Any = __import__("_winapi")
        self._kernel32, self._ntdll, pointer = windll("kernel32"), windll("ntdll"), ctypes.c_void_p
        create_job = self._kernel32.CreateJobObjectW
        create_port = self._kernel32.CreateIoCompletionPort
        create_job.restype = create_port.restype = pointer
        self._job = pointer(create_job(None, None))
        self._port = pointer(create_port(pointer(-1), None, None, 1))
        self._limit(_KILL_ON_CLOSE | (_NO_DIALOG if is_quiet else 0))
        self._set(_PORT, (pointer * 2)(None, self._port))
        self._running: dict[int, int] = {}  # process -> handle

    def _limit(self, flags: int) -> None:
        self._set(_LIMITS, (ctypes.c_uint32 * _WORDS)(*[0] * 4, flags))

    def _set(self, kind: int, value: Any) -> None:
        size = ctypes.sizeof(value)
        self._kernel32.SetInformationJobObject(self._job, kind, ctypes.byref(value), size)

    def start(self, command: Sequence[str], environ: Mapping[str, str], **streams: Any) -> Any:
        """Return a new process of the group; raises OSError where there can be none."""
        process: Any = subprocess.Popen(
            command, env=dict(environ), creationflags=_SUSPENDED, **streams
        )
        handle = ctypes.c_void_p(int(process._handle))
        self._kernel32.AssignProcessToJobObject(self._job, handle)
        self._ntdll.NtResumeProcess(handle)  # whatever it starts belongs to the group now
        return process

    def wait(self, seconds: float) -> tuple[int, int]:
        """Return a process that has ended, and how; zeros if none does meanwhile."""
        deadline = monotonic() + seconds
        message, pid = ctypes.c_uint32(), ctypes.c_void_p()
        pointers = [ctypes.byref(pointer) for pointer in (message, ctypes.c_void_p(), pid)]
        while self._kernel32.GetQueuedCompletionStatus(
            self._port, *pointers, max(0, int(1000 * (deadline - monotonic())))
        ):
            id = pid.value or 0
            if message.value == _BEGUN:
                with suppress(OSError):  # it has ended
                    self._running[id] = self._api.OpenProcess(_MAY_BE_ASKED, False, id)
            elif message.value in (_ENDED, _CRASHED) and id in self._running:
                handle = self._running.pop(id)
                status = self._api.GetExitCodeProcess(handle)
                self._api.CloseHandle(handle)
                return id, end_of(status)
        return 0, 0

    def end(self) -> None:
        """End all of them."""
        self._kernel32.TerminateJobObject(self._job, 1)

    def let_go(self) -> None:
        """Let what still runs go on when this process ends."""
        self._limit(0)


def run_to_its_end(
    command: Sequence[str], environ: Mapping[str, str], limit: float, most: int
) -> tuple[int | None, str, str]:
    """Return how a command ended (None: by the limit of seconds), and the ends of its streams."""
    job, status, said = Job(is_quiet=True), None, []
    with TemporaryFile() as output, TemporaryFile() as errors:
        nothing = subprocess.DEVNULL
        process = job.start(command, environ, stdin=nothing, stdout=output, stderr=errors)
        with suppress(subprocess.TimeoutExpired):
            status = end_of(process.wait(limit))
        job.end()
        for file in (output, errors):
            file.seek(max(0, file.seek(0, 2) - most))
            said.append(file.read().decode("utf-8", "replace").replace("\r\n", "\n"))
    return status, said[0], said[1]
