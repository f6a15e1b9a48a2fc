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
LOOK = 0.05  # seconds between two looks at a child whose output does not end


class Ended(Record):
    """How a child ended.

    Args:
        status: Exit status; negative, the signal that ended it; None, it ran into the limit.
        output: The end of what it wrote to standard output.
        errors: The end of what it wrote to standard error.
        seconds: How long it ran.
    """

    __slots__ = ("errors", "output", "seconds", "status")
    status: int | None
    output: str
    errors: str
    seconds: float

    def __init__(self, status: int | None, output: str, errors: str, seconds: float) -> None:
        self._fill(status=status, output=output, errors=errors, seconds=seconds)


def run(
    command: Sequence[str], environ: Mapping[str, str], limit: float, *, folder: str | None = None
) -> Ended:
    """Run a command to its end, or to the limit, and end whatever it leaves behind.

    The child leads a process group of its own, and all of it is killed: at the limit, when this
    call is interrupted, and after the child has ended by itself.

    Args:
        command: The command and its arguments.
        environ: The environment of the child.
        limit: Seconds.
        folder: Its working directory; None, ours.

    Raises:
        OSError: The command cannot be started.
    """
    import subprocess
    from time import monotonic

    started = monotonic()
    child = subprocess.Popen(
        command,
        env=dict(environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = _read(child, started + limit)
        ended = child.poll() is not None
    finally:
        _kill_group(child)
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    status = child.returncode if ended else None
    return Ended(status, _text(output), _text(errors), monotonic() - started)


def _read(child: Popen[bytes], deadline: float) -> tuple[bytearray, bytearray]:
    """Read both streams until the child has ended, or the deadline has come."""
    import selectors
    from time import monotonic

    kept = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, end in zip((child.stdout, child.stderr), kept):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, end)
        has_ended = False
        while selector.get_map():
            left = deadline - monotonic()
            if left <= 0:
                return kept
            # A grandchild may hold the streams open for ever: what is there when the child has
            # ended is read, and no more.
            ready = selector.select(0 if has_ended else min(left, LOOK))
            if has_ended and not ready:
                break
            for key, _ in ready:
                data = os.read(key.fd, CHUNK)
                if data:
                    key.data.extend(data)
                    del key.data[:-KEPT]
                else:
                    selector.unregister(key.fileobj)
            has_ended = has_ended or child.poll() is not None
    if child.poll() is None:  # it has closed its streams, and goes on
        import subprocess

        try:
            child.wait(max(deadline - monotonic(), 0))
        except subprocess.TimeoutExpired:
            pass
    return kept


def _kill_group(child: Popen[bytes]) -> None:
    from signal import SIGKILL

    try:
        os.killpg(child.pid, SIGKILL)
    except (ProcessLookupError, PermissionError):  # nobody is left
        pass
    child.wait()


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "replace")
