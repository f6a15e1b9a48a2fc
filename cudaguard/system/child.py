"""Runs a command as a child: with a time limit, no input, and bounded memory for its output."""

from __future__ import annotations

import os

from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from subprocess import Popen

KEPT = 1 << 16  # bytes of each stream, the last ones
CHUNK = 1 << 16
LINGER = 1.0  # seconds for output when the command has ended, and others go on writing


class Ended(Record):
    """How a child ended.

    Args:
        status: Exit status; negative, the signal that ended it; None, it ran into the limit.
        output: The end of what it wrote to standard output.
        errors: The end of what it wrote to standard error.
        seconds: How long it ran.
    """

    status: int | None
    output: str
    errors: str
    seconds: float


def run(command: Sequence[str], environ: Mapping[str, str], limit: float) -> Ended:
    """Run a command to its end, or to the limit, and end whatever it leaves behind.

    All that the command has started is killed, processes that have detached themselves from it
    included: at the limit, when the command has ended by itself, and when this process ends,
    however it does.

    Args:
        command: The command and its arguments.
        environ: The environment of the child.
        limit: Seconds.

    Raises:
        OSError: The command cannot be started.
    """
    from time import monotonic

    from cudaguard.system.keeper import start

    started = monotonic()
    report, end = os.pipe()
    try:
        try:
            keeper = start(command, environ, end)
        finally:
            os.close(end)
        try:
            output, errors, told = _read(keeper, report, started + limit)
        finally:
            _dismiss(keeper)
    finally:
        os.close(report)
    return Ended(_status(told, command[0]), _text(output), _text(errors), monotonic() - started)


def _status(told: bytes | None, name: str) -> int | None:
    """Return the exit status that a keeper tells; None for a command that has not ended."""
    from cudaguard.system.keeper import NOT_STARTED

    if told is None:
        return None
    told = told.partition(b"\n")[0]  # what was not started ends as well
    if told.startswith(NOT_STARTED):
        number = int(told[len(NOT_STARTED) :])
        raise OSError(number, os.strerror(number), name)
    if not told:
        raise OSError(f"{name}: the process that looks after it was ended")
    status = int(told)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _read(
    keeper: Popen[bytes], report: int, deadline: float
) -> tuple[bytearray, bytearray, bytes | None]:
    """Read both streams until the command has ended, or the deadline has come.

    Returns:
        The ends of both, and what the keeper tells of the end of the command, if there is one.
    """
    import selectors
    from time import monotonic

    output, errors = bytearray(), bytearray()
    told: bytes | None = None
    with selectors.DefaultSelector() as selector:
        for stream, kept in ((keeper.stdout, output), (keeper.stderr, errors)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, kept)
        selector.register(report, selectors.EVENT_READ)
        while told is None or len(selector.get_map()):
            left = deadline - monotonic()
            # What the command has started may hold the streams open for ever: what is there when
            # the command has ended is read, and no more.
            ready = selector.select(max(left, 0) if told is None else 0)
            if left <= 0 or not ready:
                break
            for key, _ in ready:
                data = os.read(key.fd, CHUNK)
                if key.fd == report:
                    told, deadline = data, min(deadline, monotonic() + LINGER)
                elif data:
                    key.data.extend(data)
                    del key.data[:-KEPT]
                if key.fd == report or not data:
                    selector.unregister(key.fileobj)
    return output, errors, told


def _dismiss(keeper: Popen[bytes]) -> None:
    """Have a keeper end all that is below it."""
    import subprocess

    from cudaguard.system.keeper import PATIENCE

    for stream in (keeper.stdin, keeper.stdout, keeper.stderr):
        if stream is not None:
            stream.close()
    try:
        keeper.wait(2 * PATIENCE)
    except subprocess.TimeoutExpired:
        keeper.kill()


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "replace")
