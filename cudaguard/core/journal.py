"""The record of what was seen: in memory always, in a crash-safe file on request.

The file gets one JSON object per line. Each line is one ``write`` to a descriptor opened with
``O_APPEND``, so lines of several processes never mix and a killed process loses nothing that
it had written. A file that cannot be written is given up after one report.

Under ``cudaguard run`` there is a second file, the record from which that command tells why the
program has died. It is nobody's wish but ours: where it cannot be written nothing is said.
"""

from __future__ import annotations

from _collections import deque  # type: ignore[import-not-found]  # light: `collections` is not
from _thread import get_ident

from cudaguard.files import LARGEST, open_to_write, os, own_errors
from cudaguard.kernel import time
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Union

    from cudaguard.core.findings import Event
    from cudaguard.model import Record

    Seen = tuple[str, str, float, int, str]  # the fields of an `Event`
    Details = Union[Record, dict[str, Any], None]

MEMORY_LIMIT = 10_000  # events
# How often `cudaguard run` is told the same: programs load and try things again without end.
_MOST_TIMES, _MOST_KEYS = 20, 300


class Journal:
    """Events of this process, and the file they are copied to; who is told if it cannot be."""

    def __init__(self, unwritable: Callable[[str, Exception], None]) -> None:
        # Tuples: an Event costs several times as much, and hardly any is ever looked at.
        self._seen: deque[Seen] = deque(maxlen=MEMORY_LIMIT)
        self._unwritable = unwritable
        self._asked = ""
        self._path = ""
        self.record = ""  # of ``cudaguard run``, which tells why the program has died
        self._written: dict[tuple[str, str], int] = {}  # kind and name: how often
        self._quoted: Callable[[str], str] = repr

    @property
    def events(self) -> tuple[Event, ...]:
        """Events noted so far, oldest first."""
        from cudaguard.core.findings import Event

        while True:
            try:
                return tuple(Event(*event) for event in self._seen.copy())
            except RuntimeError:  # without the GIL, another thread has noted one meanwhile
                continue

    @property
    def is_written(self) -> bool:
        """True if events are copied to a file."""
        return bool(self._path or self.record)

    def note(self, kind: str, name: str, where: str = "", details: Details = None) -> None:
        """Record one event, in the files together with its details; never raises."""
        event = (kind, name, time(), get_ident(), where)
        self._seen.append(event)
        if self._path or self.record:
            self._write(event, details)

    def write_to(self, path: str) -> None:
        """Copy every later event to a file; ``%p`` is the process id, "" stops the copying."""
        if path == self._asked:
            return
        self._asked, self._path = path, ""
        if path:
            self._prepare()
            try:
                self._path = os.path.abspath(os.path.expanduser(path))  # the program may chdir
            except own_errors(OSError) as error:  # the working directory is gone
                self._unwritable(path, error)

    def record_to(self, path: str) -> None:
        """Copy every later event to a file as well, for ``cudaguard run``; an absolute path."""
        self._prepare()
        self.record = path

    def _prepare(self) -> None:
        # Now, not at the first event: that may come in the middle of any import. It is what
        # `json` itself uses; that module brings `re` with it, which is half of what Python takes
        # to start, and nothing that the program has asked for.
        try:
            from _json import encode_basestring_ascii
        except own_errors(ImportError):  # another Python
            from json.encoder import encode_basestring_ascii
        self._quoted = encode_basestring_ascii

    def _write(self, event: Seen, details: Details) -> None:
        pid = os.getpid()
        path = self._path.replace("%p", str(pid))
        try:
            kind, name, time, thread, where = event
            line: dict[str, object] = {"pid": pid, "kind": kind, "name": name}
            line.update(thread=thread, time=time, where=where)
            if details is not None:
                line["details"] = details if isinstance(details, dict) else details.to_dict()
            data = f"{_json_of(line, self._quoted)}\n".encode()
        except own_errors(Exception) as error:
            self._path = self.record = ""
            if path:
                self._unwritable(path, error)
            return
        if self.record and self._is_news(event[:2]):
            try:
                _append(self.record, data, os.O_APPEND)
            except own_errors(Exception):  # a full disk; or the command's folder has gone before us
                self.record = ""
        if self._path:
            try:
                _append(path, data, os.O_APPEND | os.O_CREAT)
            except own_errors(Exception) as error:
                self._path = ""
                self._unwritable(path, error)

    def forget_written(self) -> None:
        """Tell ``cudaguard run`` the same again: this is another process than it was."""
        self._written.clear()

    def _is_news(self, key: tuple[str, str]) -> bool:
        if len(self._written) > _MOST_KEYS:
            self._written.clear()
        self._written[key] = times = self._written.get(key, 0) + 1
        return times <= _MOST_TIMES


def _json_of(value: object, quoted: Callable[[str], str]) -> str:
    """Return a value as JSON; a text of it for what JSON has no word for."""
    if isinstance(value, dict):
        pairs = (f"{quoted(str(k))}: {_json_of(item, quoted)}" for k, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join([_json_of(item, quoted) for item in value])}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value) if isinstance(value, (int, float)) else quoted(str(value))


def _append(path: str, data: bytes, flags: int) -> None:
    # Opened for each line: a descriptor that is kept may be closed behind our back, as
    # daemons close all of them, and its number then belongs to a file of the program.
    descriptor = open_to_write(path, flags)
    try:
        if not flags & os.O_CREAT and os.fstat(descriptor).st_size > LARGEST:
            raise OSError("the record is full")  # it is nobody's wish, and may be on a small disk
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
