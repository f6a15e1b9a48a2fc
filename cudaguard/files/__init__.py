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
import sys
from os import O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_TRUNC, O_WRONLY
from stat import S_ISDIR, S_ISREG

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os as os
    from collections.abc import Callable, Iterable
    from types import FrameType, ModuleType, TracebackType
    from typing import Any, TypeVar

    Path = str | os.PathLike[str]
    Error = TypeVar("Error", bound=BaseException)

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


def _copy(module: ModuleType, source: ModuleType, **changed: Any) -> ModuleType:
    """Return a module like it, of which the functions see nothing but each other.

    What it has from `source` is taken from there: a program may have replaced it already.
    """
    copy = type(module)(f"{__name__}.{module.__name__}")
    names = vars(copy)
    from_there = {name: value for name, value in vars(source).items() if name[0] != "_"}
    names.update({**vars(module), **from_there, **changed, "__name__": copy.__name__})
    for name, value in list(names.items()):
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
    os = _copy(_os, sys.modules[_os.name], environ=_os.environ)
    vars(os).update({name: _refusable(getattr(os, name)) for name in _AUDITED})
    os.path = _copy(_os.path, sys.modules["genericpath"], os=os)
    vars(os).setdefault("pread", _pread)  # Windows has none

# --- Files ----------------------------------------------------------------------------------------

LARGEST = 1 << 26  # bytes of a source, a notebook, a list of files; what is larger is a mistake
_CHUNK, _LONGEST_TEXT = 1 << 16, 1 << 20
_ODD = "not a regular file"
# Some systems lack one or the other; O_BINARY is Windows'.
_SAFE = sum(getattr(os, f"O_{name}", 0) for name in ("NONBLOCK", "NOCTTY", "CLOEXEC", "BINARY"))
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# The system's own names for streams and devices are links; nobody else can put one there.
_STREAMS = ("/dev", "/dev/fd", "/proc/self/fd")
_SIGNS = "*?["  # of patterns
_PROGRAMS = (".py", ".pyw", ".pyz", ".ipynb", ".sh", ".so", ".toml")  # what a slip would cost
# Device -> whom a file belongs to that was made there: a network disk gives root's to nobody.
_owners: dict[int, int] = {}


def open_to_read(path: Path, *, may_be_link: bool = True) -> int:
    """Return a descriptor of a regular file; a link may be refused, whatever it leads to.

    Raises OSError if it cannot be opened, or is something else; ValueError if that is no path.
    """
    # Before it is opened: that alone wakes the writer of a pipe, or rewinds a tape.
    kind = os.stat(path, follow_symlinks=may_be_link).st_mode
    if not S_ISREG(kind):
        raise OSError(_IS_FOLDER if S_ISDIR(kind) else _INVALID, _ODD, os.fspath(path))
    return _regular(os.open(path, O_RDONLY | _SAFE | (0 if may_be_link else _NO_LINK)), path)


def read_bytes(path: Path, most: int) -> bytes:
    """Return what is in a regular file, of so many bytes at most; raises as `open_to_read`."""
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


def packaged_text(path: str) -> str:
    """Return what is in a file of our own, which may lie in a zip file (zipapp)."""
    return str(_refusable(__spec__.loader.get_data)(path), "utf-8")  # type: ignore[union-attr]


def bytes_in(file: str) -> bytes:
    """Return what is in a file; nothing of one that cannot be read."""
    try:
        return read_bytes(file, LARGEST)
    except own_errors(OSError):
        return b""


def text_in(*path: str) -> str:
    """Return the beginning of a text; nothing of a file that cannot be read."""
    try:
        return read_start(os.path.join(*path), _LONGEST_TEXT).decode("utf-8", "replace")
    except own_errors(OSError, ValueError, TypeError):
        return ""


def words_in(*path: str) -> list[str]:
    """Return the words of a file of our own, without lines that begin with ``#``; or none."""
    try:
        lines = packaged_text(os.path.join(*path)).splitlines()
    except own_errors(OSError):
        return []
    return [word for line in lines if line[:1] != "#" for word in line.split()]


def escape(path: str) -> str:
    """Return a pattern of `glob` for a path; as its own function, which imports ``re`` by name."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


def names_in(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none where it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except own_errors(OSError):
        return []


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return True if a file name matches one of the patterns."""
    for pattern in patterns:
        if not name.startswith(fixed_part(pattern)):
            continue
        first, *parts = pattern.split("*")
        if "?" in pattern or "[" in pattern:
            from fnmatch import fnmatchcase

            if fnmatchcase(name, pattern):
                return True
        elif name == pattern or (parts and _has_in_order(name[len(first) :], *parts)):
            return True
    return False


def _has_in_order(text: str, *parts: str) -> bool:
    """Return True if a text has all parts, one after the other, and the last one at its end."""
    for part in parts[:-1]:
        place = text.find(part)
        if place < 0:
            return False
        text = text[place + len(part) :]
    return text.endswith(parts[-1])


def fixed_part(pattern: str) -> str:
    """Return what every name that the pattern matches begins with."""
    for sign in _SIGNS:
        pattern = pattern.partition(sign)[0]
    return pattern


def open_to_write(path: Path, flags: int = O_CREAT) -> int:
    """Return a descriptor of a regular file of this user's, or of a standard stream.

    A file that somebody else has put there, a link to one of the user's, and a program that is
    there, as in ``lint -o a.py b.py``, are not written to.
    Flags besides those for writing: ``O_CREAT``, ``O_APPEND``, ``O_TRUNC``, ``O_EXCL``. Raises as
    `open_to_read` does.
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
            state = os.fstat(file)
            _owners[state.st_dev] = state.st_uid
            return file
    if os.fspath(path).endswith(_PROGRAMS) and os.path.isfile(path) and not os.path.islink(path):
        raise OSError(_INVALID, "a program, and not written over", os.fspath(path))
    try:
        file = _regular(os.open(path, how | _NO_LINK), path)
    except own_errors(OSError):
        if os.path.islink(path):
            raise OSError(_INVALID, "a link, and not written through", os.fspath(path)) from None
        raise
    state = os.fstat(file)
    is_own = os.name != "posix" or state.st_uid in (os.geteuid(), _owners.get(state.st_dev))
    if state.st_nlink > 1 or not is_own:
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
            if not (part := os.read(file, min(most, _CHUNK))):
                break
            parts.append(part)
            most -= len(part)
    finally:
        os.close(file)
    return b"".join(parts)


# --- Is an exception in our code our own failure, or one of the program? -------------------------
# Signal handlers, other threads (``PyThreadState_SetAsyncExc``), finders and audit hooks of the
# program raise wherever we happen to be. What they raise is for the program: no ``except`` of ours
# may take it for what we expect there. One that runs while a program is being looked at is written
# ``except own_errors(OSError):``.

_Frame: Any = type(sys._getframe())
# Past what a class makes of its attributes.
_traceback: Any = BaseException.__traceback__
_module: Any = type.__dict__["__module__"]
_GUARD = ("cudaguard", "_cudaguard_boot")
_SAY_NOTHING = (MemoryError, StopIteration, StopAsyncIteration)
_standard_library: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())


def _raise(error: BaseException) -> None:
    raise error


_RAISE = _raise.__code__.co_code[2 if sys.version_info < (3, 10) else -2]  # opcode of the statement


def must_propagate(error: BaseException) -> bool:
    """Return True for an error that has to reach the program; when in doubt, it has to.

    A failure of ours is of a class of Python's or ours, and came up in code of Python's or ours
    that no signal handler has run.
    """
    try:
        if is_refused(error):
            return False
        if not issubclass(type(error), Exception) or not is_known(_module.__get__(type(error))):
            return True
        is_program_code = _first(_traceback.__get__(error), is_known) is not None
        return is_program_code or _is_sent(error) or is_of_signal_handler(error)
    except Exception as second:
        is_program_code = not is_known(_module.__get__(type(second)))
        if is_program_code or _is_sent(second) or is_of_signal_handler(second):  # not raised by us
            raise
        return True


def own_errors(*kinds: type[Error]) -> tuple[type[Error], ...]:
    """Return `kinds` if the current exception is our own failure, else ``()``: it propagates."""
    now = sys.exc_info()[1]
    return () if now is None or (issubclass(type(now), kinds) and must_propagate(now)) else kinds


def program_errors(*kinds: type[Error]) -> tuple[type[Error], ...]:
    """Return `kinds` unless a signal handler or another thread has sent the current exception.

    For an ``except`` around code of the program that is called for our sake, as a log handler is.
    """
    error = sys.exc_info()[1]
    if error is None or is_of_signal_handler(error):
        return ()
    is_known_class = is_known(_module.__get__(type(error))) and not _is_sent(error)
    is_program_code = _first(_traceback.__get__(error), is_known) is not None
    return kinds if is_known_class or is_program_code else ()  # else a thread has sent it


def text_of(error: BaseException) -> str:
    """Return what an error says; nothing if it cannot say it."""
    try:
        return str(error)
    except program_errors(Exception):  # of a class of the program's
        return ""


def is_refusal(error: Exception) -> bool:
    """Return True if the program's code raised it, called by a function of Python (an audit hook).

    To be asked where that function was called.
    """
    below = _traceback.__get__(error).tb_next
    return _first(below, is_known) is not None and not is_of_signal_handler(error)


def is_refused(error: BaseException) -> bool:
    """Return True if an audit hook of the program raised it, of what is done for our sake."""
    step = _first(_traceback.__get__(error), is_known)
    is_hook = step is not None and _is_called_with(step.tb_frame, str, tuple)
    return is_hook and not is_of_signal_handler(error)


def is_of_signal_handler(error: BaseException) -> bool:
    """Return True if a signal handler of the program raised it, as for a time limit.

    It says nothing of the code it came up in, which must let it pass.
    """
    signal: Any = sys.modules.get("_signal")
    step = _traceback.__get__(error)
    if signal is None or _first(step, _is_ours) is None:  # no handler is ours
        return False
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    while step is not None:
        if step.tb_frame.f_code in codes or _is_called_with(step.tb_frame, int, _Frame):
            return True
        step = step.tb_next
    return False


def _is_sent(error: BaseException) -> bool:
    """Return True if another thread has sent it (``PyThreadState_SetAsyncExc``).

    It says nothing, and no statement raises it where it comes up; what is used up says nothing too.
    """
    if error.args or issubclass(type(error), _SAY_NOTHING):
        return False
    step = _traceback.__get__(error)
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is not None and step.tb_frame.f_code.co_code[step.tb_lasti] != _RAISE


def standard_library() -> frozenset[str]:
    """Return the names of the modules that come with Python."""
    global _standard_library  # noqa: PLW0603  # once
    if not _standard_library:  # Python 3.9
        os = sys.modules["os"]  # by no import: whoever imports for us asks here
        folder = os.path.dirname(os.__file__)
        files = [*os.listdir(folder), *os.listdir(os.path.join(folder, "lib-dynload"))]
        names = (*sys.builtin_module_names, "_frozen_importlib", "_frozen_importlib_external")
        _standard_library = frozenset((*names, *(file.partition(".")[0] for file in files)))
    return _standard_library


def is_known(module: object) -> bool:
    """Return True if a module is Python's or ours, by its name."""
    if not isinstance(module, str):
        return False
    top = module.partition(".")[0]
    return top in _GUARD or top in (_standard_library or standard_library())


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _GUARD


def _first(step: TracebackType | None, is_passed: Callable[[object], bool]) -> TracebackType | None:
    """Return the first step in code of a module that is not to be passed over."""
    while step is not None and is_passed(step.tb_frame.f_globals.get("__name__")):
        step = step.tb_next
    return step


def _is_called_with(frame: FrameType, first: type, second: type) -> bool:
    """Return True if these are arguments: of a signal handler, or an audit hook."""
    code = frame.f_code
    if code.co_argcount < 2 or is_known(frame.f_globals.get("__name__")):
        return False
    found = frame.f_locals
    values = [found.get(name) for name in code.co_varnames[: code.co_argcount]]
    pairs = zip(values, values[1:])
    return any(issubclass(type(a), first) and type(b) is second for a, b in pairs)


def _code_of(handler: Any) -> Any:
    """Return the code that a handler runs; None if it is not written in Python."""
    handler = getattr(handler, "func", handler)  # functools.partial
    if not hasattr(handler, "__code__"):  # an object that can be called
        handler = type(handler).__call__
    return getattr(handler, "__code__", None)
