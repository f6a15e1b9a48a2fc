"""Files of others, read within bounds; files of our own, readable by this user alone.

What should be metadata may be a pipe that nobody feeds, a link to ``/dev/zero``, or larger than
memory. Where we write, somebody else may have put a link to a file that is not to be written to.

``os``, and ``open`` as `open_file`, are those that were there when the guard came. Programs, and
their tests above all, put stand-ins into ``os``, ``os.path`` and ``builtins``, as with
``mock.patch("os.open")``: these must neither count our calls nor answer them. A name that is
imported from ``os`` is not enough, as most of our modules are loaded later, and as the functions of
``os.path`` call those of ``os`` in turn. ``os.environ`` is the program's here, too; to see whether
it was replaced, import ``os`` itself. What an audit hook of the program refuses is not readable,
whatever the hook raises.
"""

from __future__ import annotations

import io
import os as _os
from os import O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_TRUNC, O_WRONLY
from stat import S_ISDIR, S_ISREG

from cudaguard.files.foreign import is_refusal as is_refusal
from cudaguard.files.foreign import must_propagate as must_propagate
from cudaguard.files.foreign import own_errors as own_errors
from cudaguard.files.foreign import program_errors as program_errors
from cudaguard.files.foreign import standard_library as standard_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os as os
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Path = str | os.PathLike[str]

_Function = type(lambda: None)
# EACCES, EISDIR and EINVAL: the same everywhere, and `errno` is one module more at start-up.
_FORBIDDEN, _IS_FOLDER, _INVALID = 13, 21, 22
_AUDITED = ("open", "listdir", "scandir")


def _refusable(function: Callable[..., Any]) -> Any:
    """Return a function like it, to which a refusal by an audit hook is one by the system."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not is_refusal(error):
                raise
        raise PermissionError(_FORBIDDEN, "refused by the program", *args[:1])

    return call


def _copy(module: ModuleType, **changed: ModuleType) -> ModuleType:
    """Return a module like it, of which the functions see nothing but each other."""
    copy = type(module)(f"{__name__}.{module.__name__}")
    names = vars(copy)
    names.update({**vars(module), **changed, "__name__": copy.__name__})
    for name, value in vars(module).items():
        if type(value) is _Function:
            parts = value.__code__, names, value.__name__, value.__defaults__, value.__closure__
            names[name] = own = _Function(*parts)
            own.__kwdefaults__ = value.__kwdefaults__
    return copy


def _pread(file: int, length: int, place: int) -> bytes:
    os.lseek(file, place, 0)
    return os.read(file, length)


open_file = io.open
if not TYPE_CHECKING:
    open_file = _refusable(io.open)
    os = _copy(_os)
    vars(os).update({name: _refusable(getattr(os, name)) for name in _AUDITED})
    os.path = _copy(_os.path, os=os)
    vars(os).setdefault("pread", _pread)  # Windows has none

# --- Files ----------------------------------------------------------------------------------------

LARGEST = 1 << 26  # bytes of a source, a notebook, a list of files; what is larger is a mistake
_CHUNK = 1 << 16
_ODD = "not a regular file"
# Some systems lack one or the other; O_BINARY is Windows'.
_SAFE = sum(getattr(os, f"O_{name}", 0) for name in ("NONBLOCK", "NOCTTY", "CLOEXEC", "BINARY"))
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# The system's own names for streams and devices are links; nobody else can put one there.
_STREAMS = ("/dev", "/dev/fd", "/proc/self/fd")
# Device -> whom a file belongs to that was made there: a network disk gives root's to nobody.
_owners: dict[int, int] = {}


def open_to_read(path: Path, *, may_be_link: bool = True) -> int:
    """Return a descriptor of a regular file.

    Args:
        path: The file.
        may_be_link: False to refuse a link, whatever it leads to.

    Raises:
        OSError: It cannot be opened, or is something else.
        ValueError: That is no path.
    """
    # Before it is opened: that alone wakes the writer of a pipe, or rewinds a tape.
    kind = os.stat(path, follow_symlinks=may_be_link).st_mode
    if not S_ISREG(kind):
        raise OSError(_IS_FOLDER if S_ISDIR(kind) else _INVALID, _ODD, os.fspath(path))
    return _regular(os.open(path, O_RDONLY | _SAFE | (0 if may_be_link else _NO_LINK)), path)


def read_bytes(path: Path, most: int) -> bytes:
    """Return what is in a regular file.

    Args:
        path: The file.
        most: Bytes; a larger file is refused.

    Raises:
        OSError: It cannot be read, is no regular file, or is larger.
        ValueError: That is no path.
    """
    data = read_start(path, most + 1)
    if len(data) > most:
        raise OSError(_INVALID, f"larger than {most} bytes", os.fspath(path))
    return data


def read_start(path: Path, most: int) -> bytes:
    """Return the first bytes of a regular file; raises what `open_to_read` does."""
    return _read(open_to_read(path), most)


def read_end(path: Path, most: int) -> bytes:
    """Return the last bytes of a regular file, no link; raises what `open_to_read` does."""
    file = open_to_read(path, may_be_link=False)
    return _read(file, most, os.fstat(file).st_size - most)


def open_to_write(path: Path, flags: int = O_CREAT) -> int:
    """Return a descriptor of a regular file of this user's, or of a standard stream.

    A file that somebody else has put there, or a link to one of the user's, is not written to.

    Args:
        path: The file.
        flags: Besides those for writing: ``O_CREAT``, ``O_APPEND``, ``O_TRUNC``, ``O_EXCL``.

    Raises:
        OSError: It cannot be opened, or is something else.
        ValueError: That is no path.
    """
    how = O_WRONLY | _SAFE | flags & ~(O_CREAT | O_TRUNC)
    if os.fspath(path).rpartition("/")[0] in _STREAMS:
        return os.open(path, how | O_APPEND)
    if flags & O_EXCL or (flags & O_CREAT and not os.path.lexists(path)):
        try:
            file = os.open(path, how | O_CREAT | O_EXCL | _NO_LINK, 0o600)
        except own_errors(FileExistsError):
            if flags & O_EXCL:
                raise
        else:
            its = os.fstat(file)
            _owners[its.st_dev] = its.st_uid
            return file
    try:
        file = _regular(os.open(path, how | _NO_LINK), path)
    except own_errors(OSError):
        if os.path.islink(path):
            raise OSError(_INVALID, "a link, and not written through", os.fspath(path)) from None
        raise
    its = os.fstat(file)
    is_own = os.name != "posix" or its.st_uid in (os.geteuid(), _owners.get(its.st_dev))
    if its.st_nlink > 1 or not is_own:
        os.close(file)
        why = "belongs to another user, or has a second name (a hard link)"
        raise OSError(_FORBIDDEN, why, os.fspath(path))
    if flags & O_TRUNC:
        os.ftruncate(file, 0)
    return file


def write_text(path: Path, text: str, flags: int = O_CREAT | O_TRUNC) -> None:
    """Write a text file; for the arguments and errors see `open_to_write`."""
    file = open_to_write(path, flags)
    try:
        if os.name == "posix":
            os.set_blocking(file, True)  # a stream may be slow
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


def _regular(file: int, path: Path) -> int:
    if not S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(_INVALID, _ODD, os.fspath(path))
    return file


def _read(file: int, most: int, start: int = 0) -> bytes:
    parts = []
    try:
        if start > 0:
            os.lseek(file, start, os.SEEK_SET)
        while most > 0:
            part = os.read(file, min(most, _CHUNK))
            if not part:
                break
            parts.append(part)
            most -= len(part)
    finally:
        os.close(file)
    return b"".join(parts)
