"""What is in every guarded process: it sees imports and loads, and wakes the guard for a reason.

It knows the names of the watched modules, reads the header of each extension before that is
mapped, and looks at what the dynamic loader has added afterwards. As long as nothing of it concerns
a feature, no other module of the guard is loaded. Whatever might has it `wake` the guard, which
takes its places over and handles the very import or load that is under way. The kernel itself
changes nothing and says nothing. `cudaguard.features._watched`, which is generated, has its data.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib import __import__ as _import  # type: ignore[attr-defined]  # Python's own
from _frozen_importlib import module_from_spec  # light: `importlib` is not
from _frozen_importlib_external import ExtensionFileLoader, PathFinder

from cudaguard.features import _watched

if sys.platform == "win32":
    import nt as _system
else:
    import posix as _system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType
    from typing import Any

    from typing_extensions import Self

    from cudaguard.config import Mode
    from cudaguard.model import Names, Rule

# Bound now: what a program puts into `os` later is its own. (Windows has no `pread`.)
_open, _close, _listdir = _system.open, _system.close, _system.listdir
_fstat, _stat, _read = _system.fstat, _system.stat, _system.read
_pread, _confstr = getattr(_system, "pread", None), getattr(_system, "confstr", None)
_READ = sum(getattr(_system, f"O_{n}", 0) for n in ("CLOEXEC", "NONBLOCK", "NOCTTY", "BINARY"))
_GLOBAL = getattr(_system, "RTLD_GLOBAL", 0)  # 0: the platform has no symbol scopes
_FOLDER = __file__[: -len("kernel.py")]
_STANDARD_LIBRARY = f"{os.sep}lib-dynload{os.sep}"
_MODES = dict.fromkeys(("fix", "1", "on", "true"), "fix")
_MODES.update((word, word) for word in ("observe", "warn", "strict"))
_DEFAULTS: tuple[object, ...] = ((), (), (), None, None, False)
_START = 1 << 14  # bytes; headers and names of most extensions lie there
_MOST = 1 << 16  # of what is counted or read in one piece
_MOST_WHOLE = 256
_WATCHED, _LIBRARIES = dict.fromkeys(_watched.WATCHED), frozenset(_watched.LIBRARIES)
_BROUGHT, _PARTS, _MAY_BE_GLOBAL = map(tuple, (_watched.BROUGHT, _watched.PARTS, _watched.GLOBAL))
_END_OF_CTYPES = "ctypes._endian"  # what ctypes imports last, when all else of it is there


class Kernel:
    """The finder on ``sys.meta_path``, and what the kernel knows; there is one per process."""

    def __init__(self) -> None:
        # Replaced as a whole: other threads read it without a lock.
        self.watched: dict[str, None] = {}
        # Mode (None: not said), and whether the environment alone asked; None: not up, or awake.
        self.asked: tuple[str | None, bool] | None = None
        self.word = ""  # of the variable CUDAGUARD, when it was put up
        self.is_awake = False
        self.has_failed = False
        self.since = "ctypes"  # why what is mapped when looking begins was not seen to come
        # Of what was replaced: what it is, whose attribute, its name, ours, the original.
        self.replaced: list[tuple[str, Any, str, Any, Any]] = []
        # What the loader counts: additions, libraries, members of the global scope. None: nothing.
        self.counters: Callable[[], tuple[int, ...]] | None = None
        self.counted: tuple[int, ...] = ()  # at the last look
        self.first = self.last = 0  # addresses of the loader's first entry, and the last known one
        self.known: dict[int, bytes] = {}  # address of an entry -> how it begins
        self.whole: set[tuple[int, ...]] = set()  # files of which all is there

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None, or for a watched module the spec that the guard's own finder gives."""
        if name not in self.watched:
            return None
        try:
            if name == _END_OF_CTYPES:
                _ctypes_comes()
                return None
            if name == "ctypes" and target is None:
                return None
            finder = wake(f"import of {name}").finder
        except _contained():
            return None
        try:
            spec: ModuleSpec | None = finder.find_spec(name, path, target)
        except BaseException as error:
            _hide_frame(error)
            raise
        return spec

    def replace(self, what: str, owner: Any, name: str, ours: Any) -> None:
        """Put a function of ours in the place of another."""
        self.replaced.append((what, owner, name, ours, getattr(owner, name)))
        setattr(owner, name, ours)

    def beneath(self, ours: object) -> Any:
        """Return what stood where a function of the kernel's stands, or a function as it is."""
        return next((one[-1] for one in self.replaced if one[-2] is ours), ours)

    def covered(self) -> list[str]:
        """Return those of the places where another's function has been put on top of ours."""
        return [one[0] for one in self.replaced if getattr(one[1], one[2]) is not one[3]]

    def retire(self, finder: object) -> None:
        """Leave to the guard what it has taken over, and the place on ``sys.meta_path``."""
        for place, one in enumerate(sys.meta_path):
            if one is self:
                sys.meta_path[place] = finder  # type: ignore[call-overload]  # duck-typed
                break
        self.watched, self.asked, self.is_awake = {}, None, True


kernel = Kernel()


# --- Failures of ours, and frames of ours ---------------------------------------------------------


_SEEN_AS = f"<frozen importlib._bootstrap, {__name__}>"
_BOOTSTRAP = "<frozen importlib._bootstrap"
_READING = (__file__, _SEEN_AS, f"{_BOOTSTRAP}>", f"{_BOOTSTRAP}_external>")
_traceback: Any = BaseException.__traceback__  # past what a class makes of its attributes


def _of_import_system(function: Any) -> Any:
    # `warnings` passes by the frames of files so named: see `cudaguard.hooks.caller`.
    function.__code__ = function.__code__.replace(co_filename=_SEEN_AS)
    return function


def _hide_frame(error: BaseException) -> None:
    traceback = _traceback.__get__(error)
    if traceback is not None:
        _traceback.__set__(error, traceback.tb_next)


def _is_own(error: BaseException) -> bool:
    """Return True for a failure of the guard: of Python's own class, in code of the guard only."""
    kind = type(error)
    if kind.__module__ != "builtins" or not issubclass(kind, Exception):
        return False
    # Without arguments another thread has sent it.
    return _frames_of_ours(error)[1] is None and bool(error.args or issubclass(kind, MemoryError))


def _is_refusal(error: BaseException) -> bool:
    """Return True if an audit hook of the program has refused to let us read or import.

    What a signal handler raises looks the same, so that nothing is taken for a refusal where there
    is one.
    """
    last, foreign = _frames_of_ours(error)
    if foreign is None or last not in _READING or not isinstance(error, Exception):
        return False
    signal: Any = sys.modules.get("_signal")
    handlers = map(signal.getsignal, signal.valid_signals()) if signal else ()
    return not any(callable(one) and one is not signal.default_int_handler for one in handlers)


def _frames_of_ours(error: BaseException) -> tuple[str, TracebackType | None]:
    """Return the file of the last frame of ours that an error went through, and what is behind."""
    last, step = "", _traceback.__get__(error)
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if not file.startswith((_FOLDER, "<frozen importlib")):
            break
        last, step = file, step.tb_next
    return last, step


def _failures() -> tuple[type[BaseException], ...]:
    """Return what catches the current exception if it is no more than a failure of ours."""
    error: Any = sys.exc_info()[1]
    return (Exception,) if _is_own(error) or _is_refusal(error) else ()


def _contained() -> tuple[type[BaseException], ...]:
    """Return what `_failures` does, and have the guard tell of one that it should not have."""
    error: Any = sys.exc_info()[1]
    if not _is_own(error):
        return (Exception,) if _is_refusal(error) else ()
    if not kernel.has_failed:
        kernel.has_failed = True
        try:
            wake("a failure of the kernel").broken("watching imports and loads", error)
        except _failures():
            kernel.is_awake, kernel.watched = True, {}  # all passes through
            if sys.stderr is not None:
                print(f"cudaguard: {type(error).__name__}: {error}", file=sys.stderr)
    return (Exception,)


# --- Waking ---------------------------------------------------------------------------------------


def wake(reason: str) -> Any:
    """Load the guard, have it take over if that has not happened, and return its core.

    Args:
        reason: Why, in words that follow "woken by".
    """
    activation = load("cudaguard.api").activation
    activation.take_over(kernel, reason)
    return activation.core


def load(name: str) -> Any:
    """Return a module of ours, imported past the program's hooks."""
    for own in ("cudaguard.hooks", "cudaguard.hooks.own_imports"):
        if own not in sys.modules:
            parent, _, child = own.rpartition(".")
            spec: Any = PathFinder.find_spec(own, sys.modules[parent].__path__)
            module = module_from_spec(spec)
            # The builtins as they are, but for what the program has made of `__import__`.
            vars(module)["__builtins__"] = {**vars(sys.modules["builtins"]), "__import__": _import}
            spec.loader.exec_module(module)
            # Another thread may have been first.
            setattr(sys.modules[parent], child, sys.modules.setdefault(own, module))
    return sys.modules["cudaguard.hooks.own_imports"].load(name)


# --- Extensions -----------------------------------------------------------------------------------


@_of_import_system
def _create_module(loader: ExtensionFileLoader, spec: ModuleSpec) -> Any:
    original = kernel.beneath(_create_module)
    guarded, is_asleep = None, not kernel.is_awake
    try:
        reason = _why_extension(spec) if is_asleep else ""
        if reason:
            guarded = wake(reason).extensions.load
    except _contained():
        pass
    try:
        try:
            module = (guarded or original)(*((original,) if guarded else ()), loader, spec)
        except ImportError as error:
            if not is_asleep or guarded:
                raise
            _hide_frame(error)
            return _failed(original, loader, spec, error)
    except BaseException as error:
        _hide_frame(error)
        raise
    if is_asleep and not guarded:
        try:
            _look_after(f"mapped by {spec.name}", lambda core: core.extensions.ended(spec))
        except _contained():
            pass
    return module


def _look_after(how: str, tell: Callable[[Any], None]) -> None:
    """Look at what a load has brought, and have the guard told if that concerns it."""
    why = "" if kernel.is_awake else _why_mapped(how)
    if why or kernel.is_awake:
        tell(wake(why))


def _failed(
    original: Callable[..., Any], loader: ExtensionFileLoader, spec: ModuleSpec, error: ImportError
) -> Any:
    """Have the guard explain why an extension was not mapped, or bring what it lacks."""
    try:
        guarded = wake(f"extension {spec.name}, which was refused").extensions.load
    except _contained():
        raise error from None
    return guarded(original, loader, spec, error)


def _why_extension(spec: ModuleSpec) -> str:
    """Return what concerns the guard in an extension that is about to be mapped, in words."""
    name, file = getattr(spec, "name", None), getattr(spec, "origin", None)
    if type(name) is not str or type(file) is not str or _STANDARD_LIBRARY in file:
        return ""
    package = name
    while package:
        if package in kernel.watched:
            return f"extension {name}"
        package = package.rpartition(".")[0]
    stem, _, number = name.rpartition("_v")  # torch renames a rebuilt extension
    if stem in kernel.watched and number.isdigit():
        return f"extension {name}"
    if kernel.counters is None and _has_ctypes():  # it came past us
        _ctypes_comes()
    why = _why_mapped("mapped past Python's importer") or _why_file(file)
    return f"extension {name}, which {why}" if why.startswith(("needs", "is", "has")) else why


def _why_file(path: str) -> str:
    """Return what the file of an extension has for the guard: see `_why_extension`."""
    if sys.platform != "linux":
        return ""
    try:
        file = _open(path, _READ)
    except _failures():  # the loader has its own words
        return ""
    try:
        start = _pread(file, _START, 0)  # type: ignore[misc]  # it is Linux
        headers, end = _headers(start)
        if end > _fstat(file).st_size:
            return "is cut short, or unlike others"

        def at(place: int, length: int) -> bytes:
            if place + length <= len(start):
                return start[place : place + length]
            return _pread(file, min(length, _MOST << 8), place)  # type: ignore[misc]  # as above

        dynamic = [one for one in headers if one[0] & 0xFFFFFFFF == 2]
        if not dynamic:
            return ""
        section = at(dynamic[-1][1], min(dynamic[-1][4], _MOST))
        words = memoryview(section)[: len(section) // 16 * 16].cast("Q").tolist()
        tags, values = words[::2], words[1::2]
        if not {0, 5, 10} <= set(tags):
            return "is unlike others"
        table, size = values[tags.index(5)], values[tags.index(10)]
        loads = [one for one in headers if one[0] & 0xFFFFFFFF == 1]
        place = [one[1] + table - one[2] for one in loads if one[2] <= table < one[2] + one[4]]
        names = at(place[0], size) if place else b""
    finally:
        _close(file)
    places = [value for tag, value in zip(tags[: tags.index(0)], values) if tag == 1]
    texts = [names[place : names.find(b"\0", place)] for place in places]
    needed = [text.decode("utf-8", "replace") for text in texts]
    for name in needed:
        if name.startswith(_BROUGHT):
            return f"needs {name}"
        if name in _watched.FIRST and _has_environment(name):
            return f"needs {name}, which the environment has"
    is_odd = b"2idE\0" in names and "libstdc++.so.6" not in needed
    return "has a C++ runtime of its own" if is_odd else ""


def _headers(start: bytes) -> tuple[list[list[int]], int]:
    """Return the program headers of an ELF file, as words, and where the file has to end.

    Beyond all files if they are not as the loader's of this machine are; nothing of other files.
    """
    if start[:4] != b"\x7fELF":
        return [], 0
    place, count = int.from_bytes(start[32:40], "little"), int.from_bytes(start[56:58], "little")
    table = start[place : place + 56 * count]
    if start[4:6] != b"\2\1" or start[54:56] != b"\x38\0" or len(table) != 56 * count:
        return [], sys.maxsize
    words = memoryview(table).cast("Q").tolist()
    headers = [words[i : i + 7] for i in range(0, 7 * count, 7)]
    ends = [one[1] + one[4] for one in headers if one[0] & 0xFFFFFFFF == 1 and one[4]]
    return headers, max(ends, default=0)


def _has_environment(name: str) -> bool:
    """Return True if the folder of Python's environment has a library of that name."""
    for folder in (f"{sys.prefix}/lib", f"{sys.base_prefix}/lib"):
        try:
            if any(one.startswith(name) for one in _listdir(folder)):
                return True
        except _failures():
            continue
    return False


# --- What the dynamic loader has mapped -----------------------------------------------------------


def _begin_to_look(ctypes: Any) -> None:
    """Find where the loader counts what it does, and look at all that it has mapped so far.

    Its structure is private, and read as glibc's is for 64 bits: the name spaces, the first with
    its entry, its number of libraries and the global scope; behind them locks, and the number of
    all that was ever added. Where it is not as expected, the guard has to look in its own way.

    Source: ``rtld_global`` in glibc's ``sysdeps/generic/ldsodefs.h``.
    """
    if not _confstr or not (_confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
        return
    try:
        place = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_rtld_global"))
        words = (ctypes.c_size_t * 420).from_address(place)[:]
    except (AttributeError, ValueError):  # another libc, a static program
        words = [0] * 420
    count, lock = words[1] & 0xFFFFFFFF, [0, 0, 1, 0, 0]
    adds = [
        at
        for at in range(40, 420)
        if words[at - 5 : at] == lock and count <= words[at] < count + _MOST
    ]
    first, scope = words[0], words[2]
    if not adds or first != ctypes.pythonapi._handle or not first < scope < first + 2048:
        wake("a dynamic loader that is not known")
        return
    number = ctypes.c_uint.from_address
    a, b, c = number(place + 8 * adds[0]), number(place + 8), number(scope + 8)
    kernel.counters = lambda: (a.value, b.value, c.value)
    kernel.first = first
    members = ctypes.c_size_t.from_address(scope).value, c.value
    why = _why_mapped("there before", (ctypes.c_size_t * members[1]).from_address(members[0])[:])
    if why:
        wake(why)


def _why_mapped(how: str, members: Sequence[int] = ()) -> str:
    """Look at what the loader has added; return what of it concerns the guard, in words.

    What does is not taken note of: to the guard it is new, too.

    Args:
        how: Follows the name of a library.
        members: Entries of the global scope, when that is looked at.
    """
    if kernel.counters is None:
        return ""
    before, now = kernel.counted, kernel.counters()
    if now == before:
        return ""
    if before and now[2] > before[2]:
        return f"a library that was made global, {how}"
    is_whole = not before or now[0] - now[1] != before[0] - before[1]  # something was unloaded
    found: dict[int, bytes] = {}
    last, entry = kernel.last, kernel.first
    memory = -1
    try:
        memory = _open("/proc/self/mem", _READ)
        if not is_whole:
            entry = int.from_bytes(_pread(memory, 8, last + 24), "little")  # type: ignore[misc]  # it is Linux
        while entry:
            data = _pread(memory, 40, entry)  # type: ignore[misc]  # as above
            _, text, _, following, previous = memoryview(data).cast("Q").tolist()
            if len(found) > _MOST or (found and previous != last):
                return ""  # changed while it was read: the next look sees it
            found[entry] = data[:24]
            if kernel.known.get(entry) != data[:24]:
                name = _name_at(memory, text)
                is_odd = entry in members and name and not name.startswith(_MAY_BE_GLOBAL)
                if is_odd or _concerns(name):
                    return f"{name}, {how}"
            last, entry = entry, following
    except _failures():
        return ""
    finally:
        if memory >= 0:
            _close(memory)
    if is_whole:
        kernel.known = found
    else:
        kernel.known.update(found)
    kernel.last, kernel.counted = last, now
    return ""


def _name_at(memory: int, place: int) -> str:
    """Return the name of the file whose path stands there."""
    path = _pread(memory, min(4096 - place % 4096, 512), place) if place else b"\0"  # type: ignore[misc]  # it is Linux
    if b"\0" not in path:
        path += _pread(memory, 4096, place + len(path))  # type: ignore[misc]  # as above
    return path[: path.find(b"\0")].rpartition(b"/")[2].decode("utf-8", "replace")


def _concerns(name: str) -> bool:
    """Return True for a library that a detector knows; its name may have a mark of auditwheel."""
    stem, so, _ = name.partition(".so")
    first, _, _ = stem.rpartition("-")
    return bool(so) and (stem in _LIBRARIES or first in _LIBRARIES or stem.startswith(_PARTS))


# --- sys.setdlopenflags ---------------------------------------------------------------------------


class _SetFlags:
    """Looks like the function it replaces, and like that binds to no instance or class."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self.__module__, self.__doc__ = original.__module__, original.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        call, is_plain = self._original, len(args) == 1 and type(args[0]) is int and not kwargs
        try:
            if not (kernel is None or kernel.is_awake or (is_plain and not args[0] & _GLOBAL)):
                frame = sys._getframe().f_back
                flags = wake("sys.setdlopenflags(), which makes extensions global").flags
                args, kwargs = (self._original, frame, args, kwargs), {}
                call = flags.call
        except _contained():
            pass
        try:
            call(*args, **kwargs)
        except BaseException as error:
            _hide_frame(error)
            raise

    @property  # type: ignore[misc]  # a class that shows another one, as weakref.proxy does
    def __class__(self) -> type:
        return type(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce__(self) -> str:
        return str(self._original.__name__)  # found by that in its module


# --- ctypes ---------------------------------------------------------------------------------------


def _has_ctypes() -> bool:
    """Return True if all that matters of ctypes is there, and was not lazily put off."""
    module = sys.modules.get("ctypes")
    return module is not None and "pythonapi" in object.__getattribute__(module, "__dict__")


def _ctypes_comes() -> None:
    """Watch the loads of ctypes, and look at what is mapped with it."""
    ctypes: Any = sys.modules.get("ctypes")
    if not _has_ctypes() or kernel.is_awake or any(one[2] == "__init__" for one in kernel.replaced):
        return
    cdll = ctypes.CDLL
    if type(cdll) is not type or (cdll.__module__, cdll.__name__) != ("ctypes", "CDLL"):
        wake("a ctypes that is not as Python's")
        return
    if _GLOBAL:
        _patch(cdll, ctypes.DEFAULT_MODE)
        _begin_to_look(ctypes)


def _patch(cdll: Any, default_mode: int) -> None:
    original = cdll.__init__

    # The name and the arguments of the original: they are in the errors of bad calls.
    def __init__(  # noqa: N807
        self: object,
        name: Any,
        mode: int = default_mode,
        handle: Any = None,
        use_errno: Any = False,
        use_last_error: Any = False,
        winmode: Any = None,
    ) -> None:
        args = name, mode, handle, use_errno, use_last_error, winmode
        is_asleep = kernel is not None and not kernel.is_awake and name is not None is handle
        guarded, is_refused = None, False
        try:
            reason = _why_library(name, mode) if is_asleep else ""
            guarded = wake(reason).ctypes.load if reason else None
        except _contained():
            pass
        try:
            if guarded is None:
                try:
                    original(self, *args)
                except OSError as error:
                    if not is_asleep or _is_absent(error, name):
                        raise
                    is_refused = True
            if is_refused:
                guarded = _load_of_guard(name)
            if guarded is not None:
                guarded(original, self, *args)
            elif is_refused:
                original(self, *args)
        except BaseException as error:
            _hide_frame(error)
            raise
        if is_asleep and guarded is None:
            try:
                how = f"loaded by ctypes as {name}"
                _look_after(how, lambda core: core.ctypes.ended(name, mode))
            except _contained():
                pass

    for attribute in ("__module__", "__qualname__", "__doc__"):
        setattr(__init__, attribute, getattr(original, attribute, None))
    __init__.__wrapped__ = original  # type: ignore[attr-defined]  # inspect.signature follows it
    kernel.replace("ctypes.CDLL.__init__", cdll, "__init__", __init__)


def _why_library(name: Any, mode: Any) -> str:
    """Return what concerns the guard in a library that ctypes is about to load, in words."""
    if type(name) is not str or type(mode) is not int:
        return "a library with an unusual name or mode, loaded by ctypes"
    if mode & _GLOBAL:
        return f"{name}, which ctypes makes global"
    if os.sep in name and _is_cut_short(name):
        return f"{name}, which is cut short"
    return _why_mapped("mapped past Python's importer")


def _load_of_guard(name: str) -> Any:
    try:
        return wake(f"{name}, which was refused to ctypes").ctypes.load
    except _contained():
        pass
    return None


def _is_absent(error: OSError, name: str) -> bool:
    """Return True if a library is not there, and no program has set where to look too late."""
    if str(error) != f"{name}: cannot open shared object file: No such file or directory":
        return False
    variable = "LD_LIBRARY_PATH"
    was = getattr(_system, "environ", {}).get(variable.encode(), b"")
    return os.sep in name or os.environ.get(variable, "").encode() in (b"", was)


def _is_cut_short(path: str) -> bool:
    """Return True for a library whose file ends too early, or that is unlike others."""
    try:
        state = _stat(path)
        key = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
        if key in kernel.whole or sys.platform != "linux" or state.st_mode & 0xF000 != 0x8000:
            return False
        file = _open(path, _READ)
        try:
            start = _pread(file, _START, 0)  # type: ignore[misc]  # it is Linux
        finally:
            _close(file)
    except _failures():
        return False
    if _headers(start)[1] > state.st_size:
        return True
    if len(kernel.whole) >= _MOST_WHOLE:
        kernel.whole.clear()
    kernel.whole.add(key)
    return False


# --- Switching on ---------------------------------------------------------------------------------


class Guard:
    """Handle of the installed guard; as a context manager it uninstalls at the end."""

    @property
    def mode(self) -> str:
        """The mode in force, one of ``off``, ``observe``, ``warn``, ``fix`` and ``strict``."""
        mode: str = wake("a look at the mode").reporter.mode
        return mode

    def uninstall(self) -> None:
        """Take the guard down (see `cudaguard.uninstall`)."""
        wake("uninstall()")
        _api().uninstall()

    def __enter__(self) -> Self:
        wake("a with statement")
        _api().enter(sys._getframe(1))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _api().leave(error)

    def __repr__(self) -> str:
        return f"<cudaguard.Guard, mode {self.mode}>"


GUARD = Guard()


def install(
    mode: Mode | None = None,
    *,
    enable: Names = (),
    disable: Names = (),
    rules: Iterable[Rule] = (),
    config: str | os.PathLike[str] | None = None,
    context: int | str | None = None,
    children: bool = False,
) -> Guard:
    """Put the guard up for the rest of the process.

    Idempotent: a second call returns the same handle, applies its mode and switches, and adds
    its rules. ``CUDAGUARD=off`` in the environment keeps the guard down whatever is asked for.

    Args:
        mode: ``off``, ``observe``, ``warn``, ``fix`` or ``strict``; None takes the
            environment variable ``CUDAGUARD``, then the configuration file, then ``fix``.
        enable: Ids of opt-in rules to switch on.
        disable: Ids of rules to switch off.
        rules: Further rules; one with a known id replaces that rule.
        config: A ``cudaguard.toml``, or a TOML file with ``[tool.cudaguard]``; None takes
            the file named by the environment variable ``CUDAGUARD_CONFIG``.
        context: ``none`` (the default), ``auto`` (create a CUDA context before the first watched
            import whose rule needs one), or a device on which to create one now: its ordinal,
            UUID or PCI bus id. None takes the environment variable ``CUDAGUARD_CONTEXT``, then
            the configuration file. A context that cannot be created is warned of.
        children: Also guard the Python processes that this one starts, by setting
            ``CUDAGUARD`` in its environment.

    Returns:
        The handle of the guard; there is one per process.

    Raises:
        ConfigError: An unknown mode or rule id, or a configuration file that cannot be used.
        RuleError: A malformed rule.
    """
    settings = enable, disable, rules, config, context, children
    is_plain = all(value is usual for value, usual in zip(settings, _DEFAULTS))
    is_plain = is_plain and (mode is None or (type(mode) is str and mode in _MODES.values()))
    why = _put_up(mode) if is_plain else "install() with settings"
    if why:
        wake(why)
        _api().install(mode, *settings)
    return GUARD


def boot() -> None:
    """Put the guard up because the environment variable ``CUDAGUARD`` says so."""
    why = _put_up(None, is_alone=True)
    if why:
        wake(why)
        _api().boot()


def _put_up(mode: str | None, *, is_alone: bool = False) -> str:
    """Have the kernel stand in for the guard; return why that is not possible, empty if it is."""
    if kernel.is_awake or "cudaguard.api" in sys.modules:
        return "install()"
    word = os.environ.get("CUDAGUARD", "").strip().lower()
    if word and word not in _MODES:
        return f"CUDAGUARD={word}"
    variable = next((name for name in os.environ if name.startswith("CUDAGUARD_")), "")
    if variable:
        return f"environment variable {variable}"
    if kernel.asked is not None:
        is_alone = is_alone and kernel.asked[1]
        kernel.asked, kernel.word = (mode or kernel.asked[0], is_alone), word
        return "" if sys.meta_path[:1] == [kernel] else "another finder was put in front"
    early = _WATCHED.keys() & sys.modules.keys()
    if early:
        return f"{min(early)}, which was imported before"
    if _has_plugins():
        return "a rule plug-in"
    kernel.asked, kernel.word = (mode, is_alone), word
    kernel.watched = {**_WATCHED, "ctypes": None, _END_OF_CTYPES: None}
    sys.meta_path.insert(0, kernel)  # type: ignore[arg-type]  # duck-typed
    original = ExtensionFileLoader.create_module
    for attribute in ("__module__", "__qualname__", "__doc__"):
        setattr(_create_module, attribute, getattr(original, attribute, None))
    _create_module.__wrapped__ = original  # type: ignore[attr-defined]  # inspect follows it
    kernel.replace(
        "ExtensionFileLoader.create_module", ExtensionFileLoader, "create_module", _create_module
    )
    if _GLOBAL:
        ours = _SetFlags(sys.setdlopenflags)
        kernel.replace("sys.setdlopenflags", sys, "setdlopenflags", ours)
    if _has_ctypes():
        kernel.since = "guard"
        _ctypes_comes()
    return ""


def _has_plugins() -> bool:
    """Return True if a distribution has rules of its own; which, the guard finds out."""
    for folder in {one or "." for one in sys.path if isinstance(one, str)}:
        try:
            names = _listdir(folder)
        except _failures():  # zip files, missing folders
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")) and _names_rules(f"{folder}/{name}"):
                return True
    return False


def _names_rules(folder: str) -> bool:
    try:
        file = _open(f"{folder}/entry_points.txt", _READ)
        try:
            return b"[cudaguard.rules]" in _read(file, _MOST << 4)
        finally:
            _close(file)
    except _failures():
        return False


def _api() -> Any:
    return sys.modules["cudaguard.api"]
