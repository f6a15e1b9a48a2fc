"""What is in every guarded process: it sees imports and loads, and wakes the guard for a reason.

It knows the names of the watched modules, reads the header of each extension before that is
mapped, and looks at what the dynamic loader has added afterwards. As long as nothing of it concerns
a feature, no other module of the guard is loaded. Whatever might has it `wake` the guard, which
takes over and handles the import or load that is under way. Its data is `cudaguard.kernel.watched`.
"""

import os
import sys
from _frozen_importlib import __import__ as _import  # Python's own
from _frozen_importlib import module_from_spec  # light: `importlib` is not
from _frozen_importlib_external import ExtensionFileLoader, PathFinder
from _thread import _local
from time import monotonic as monotonic  # for all of us, before a program may replace it
from time import time as time

from cudaguard.kernel import watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, TypeVar

    from typing_extensions import Self

    Function = TypeVar("Function")

SYSTEM: "Any" = sys.modules[os.name]  # `posix` or `nt`
_open, _close, _read = SYSTEM.open, SYSTEM.close, SYSTEM.read  # a program may replace os's later
_listdir, _access = SYSTEM.listdir, SYSTEM.access
FLAGS = sum(getattr(SYSTEM, f"O_{n}", 0) for n in ("CLOEXEC", "NONBLOCK", "NOCTTY", "BINARY"))
RTLD_GLOBAL = getattr(SYSTEM, "RTLD_GLOBAL", 0)  # 0: the platform has no symbol scopes
# As our code names it, which may be no path: without sources, or where PyInstaller packed it.
FOLDER = sys._getframe().f_code.co_filename[: -len("kernel/__init__.py")] or "cudaguard"
LIB_DYNLOAD = f"{os.sep}{'DLLs' if sys.platform == 'win32' else 'lib-dynload'}{os.sep}"
_MODES = dict.fromkeys(("fix", "1", "on", "true"), "fix")
_MODES.update((word, word) for word in ("observe", "warn", "strict"))
_WATCHED = dict.fromkeys(watched.WATCHED + (watched.WINDOWS if sys.platform == "win32" else []))
_END_OF_CTYPES = "ctypes._endian"  # what ctypes imports last, when all else of it is there
_SEEN_AS = "<frozen importlib._bootstrap, "
TRACEBACK: "Any" = BaseException.__traceback__  # past what a class makes of its attributes


def of_import_system(function: "Function") -> "Function":
    """Have the frames of a function counted among those of the import system.

    What a module warns of on behalf of its importer (``stacklevel=2``) is that one's line: it is
    found by passing by files with ``importlib`` and ``_bootstrap`` in their names.
    """
    changed: Any = function
    seen_as = f"{_SEEN_AS}{changed.__module__}>"
    changed.__code__ = changed.__code__.replace(co_filename=seen_as)
    return function


def hide_frame(error: BaseException) -> None:
    """Drop the frame that catches an error, and ours behind it: not the user's business (3.11+)."""
    try:
        if (traceback := TRACEBACK.__get__(error)) is not None:
            TRACEBACK.__set__(error, _behind_ours(traceback.tb_next, _SEEN_AS))
    except failures():  # in the way of the error that is being raised
        return


def _is_own(error: BaseException) -> bool:
    """Return True for a failure of the guard: of Python's own class, in code of the guard only."""
    kind = type(error)
    if kind.__module__ != "builtins" or not issubclass(kind, Exception):
        return False
    # Without arguments another thread has sent it.
    is_sent = not (error.args or issubclass(kind, MemoryError))
    return not is_sent and _behind_ours(TRACEBACK.__get__(error)) is None


def _is_refusal(error: BaseException) -> bool:
    """Return True if the program has refused to let us do something: by None, or an audit hook."""
    if type(error).__module__ in ("cudaguard", "cudaguard.errors"):  # on purpose
        return False
    if (foreign := _behind_ours(TRACEBACK.__get__(error))) is None:
        is_import = isinstance(error, ImportError) and bool(error.args)
        return is_import and not str(error.name).startswith("cudaguard")  # type: ignore[attr-defined]
    kinds, step = [_given(foreign.tb_frame)], foreign.tb_next
    while step is not None:
        kinds, step = [*kinds, _given(step.tb_frame)], step.tb_next
    return kinds[0] == [str, tuple] and [int, type(foreign.tb_frame)] not in kinds


def _given(frame: "Any") -> "list[type]":
    """Return the classes of the last two arguments: of an audit hook, or a signal handler."""
    found, code = frame.f_locals, frame.f_code
    values = [found.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & 4:  # *args
        values += found[code.co_varnames[code.co_argcount + code.co_kwonlyargcount]]
    return list(map(type, values[-2:]))


def _behind_ours(step: "Any", imports: str = "<frozen importlib") -> "Any":
    """Return what is behind the first frames of a traceback that are ours, or so named."""
    while step is not None and step.tb_frame.f_code.co_filename.startswith((FOLDER, imports)):
        step = step.tb_next
    return step


def failures() -> "tuple[type[BaseException], ...]":
    """Return what catches the current exception if it is no more than a failure of ours."""
    error: Any = sys.exc_info()[1]
    return (BaseException,) if _is_own(error) or _is_refusal(error) else ()


def contained() -> "tuple[type[BaseException], ...]":
    """Return what `failures` does, and have the guard tell of one that it should not have."""
    error: Any = sys.exc_info()[1]
    found = failures()
    # Short of memory, stack or files, as in `core.reports`: the next time will do.
    is_short = type(error) in (MemoryError, RecursionError)
    is_short |= getattr(error, "errno", 0) in (23, 24)
    if found and not (is_short or _is_refusal(error) or kernel.has_failed):
        kernel.has_failed = True
        try:
            wake("a failure of the kernel").broken("watching imports and loads", error)
        except failures():
            kernel.asked, kernel.watched = None, {}  # all passes through
            if sys.stderr is not None:
                print(f"cudaguard: {type(error).__name__}: {error}", file=sys.stderr)
    return found


class GuardFinder:
    """The finder on ``sys.meta_path``, and what the kernel knows; there is one per process."""

    def __init__(self) -> None:
        # Replaced as a whole: other threads read it without a lock.
        self.watched: Mapping[str, object] = {}
        # Asleep: the mode (None: not said), and whether the environment alone asked. Else None.
        self.asked: tuple[str | None, bool] | None = None
        self.core: Any = None  # awake: that of the guard
        # The mode of the variable CUDAGUARD and the process, when it was put up.
        self.mode, self.pid, self.has_failed = "", 0, False
        self.loads: Any = None  # `cudaguard.kernel.loads`, once it is needed
        self.cdll: object = None  # what was in ctypes by that name at the last look
        self.retired: type | None = None  # of a finder that has had our place
        self.thread = _local()  # .busy: modules it looks for; .precise: see `begins_to_flush`
        self.stand_ins: list[StandIn] = []
        self.without_plugins: list[object] = []  # folders of sys.path

    @of_import_system
    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return the spec the other finders give for a watched module, with the guard's loader."""
        try:
            if name not in self.watched:
                return None
            # Asleep, ctypes is watched for its time only.
            if self.asked and name.startswith("ctypes") and (target is None or name != "ctypes"):
                if name == _END_OF_CTYPES:
                    watch_ctypes()
                return None
            # Per thread and per name: another hook that delegates may call back here, while
            # another thread's import of the same module must not pass unguarded.
            busy: set[str] = self.thread.__dict__.setdefault("busy", set())
            if name in busy:
                return None
            first, *behind = sys.meta_path
            if first is not self or self.retired is not None:
                behind = self._behind()
            busy.add(name)
        except contained():
            return None  # the other finders are asked without us
        spec: ModuleSpec | None = None
        try:
            # Not importlib.util.find_spec: it imports parents, takes their locks, and returns
            # the old spec during a reload. Here, not in a function: that might fail.
            for finder in behind:
                if (find := getattr(finder, "find_spec", None)) is not None:
                    if (spec := find(name, path, target)) is not None:
                        break
                elif sys.version_info < (3, 12):
                    find = getattr(finder, "find_module", None)
                    if find is not None and find(name, path) is not None:
                        return None  # only importlib knows how to use it; it asks again
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            busy.discard(name)
        is_asleep = spec is not None and self.asked is not None
        core = core_for(str, f"import of {name}") if is_asleep else self.core
        if spec is not None and core is not None:
            core.stand_before(spec)
        return spec

    def _behind(self) -> "list[Any]":
        """Return who is asked after this finder; those in front have been asked already."""
        finders: list[Any] = list(sys.meta_path)
        places = (place for place, one in enumerate(finders, 1) if one is self)
        return [one for one in finders[next(places, 0) :] if type(one) is not self.retired]

    def patch(self) -> None:
        """Put ours in the place of what extensions, flags and ctypes' libraries come through."""
        if not self.stand_ins:
            _patch_extensions()
            if RTLD_GLOBAL:
                stand_in = StandIn("sys.setdlopenflags", sys, "setdlopenflags")
                stand_in.put(_SetFlags(stand_in))
        watch_ctypes()

    def of_loads(self) -> "Any":
        """Return the module for loads, which is imported for the first one."""
        self.loads = self.loads or _found(f"{__name__}.loads")
        return self.loads

    def has_plugins(self) -> bool:
        """Return True if a distribution has rules of its own; which, the guard finds out."""
        path, known = list(sys.path), self.without_plugins
        files = (f"{one}/entry_points.txt" for one in distributions(path, known))
        found = any(b"[cudaguard.rules]" in start_of(file) for file in files if _access(file, 0))
        self.without_plugins = known if found else [*filter(None, path)]
        return found


kernel = GuardFinder()


class StandIn:
    """Something of Python's that a function of ours stands in for."""

    __slots__ = ("is_installed", "name", "original", "ours", "owner", "what")

    def __init__(self, what: str, owner: "Any", name: str) -> None:
        self.what, self.owner, self.name = what, owner, name
        self.original: Any = getattr(owner, name)

    def put(self, ours: "Any") -> None:
        """Put ours there, looking like the original."""
        if isinstance(ours, type(hide_frame)):
            for attribute in ("__module__", "__qualname__", "__doc__", "__annotations__"):
                setattr(ours, attribute, getattr(self.original, attribute, None))
            vars(ours)["__wrapped__"] = self.original  # inspect.signature follows it
        self.ours: Any = ours
        self.is_installed = True
        kernel.stand_ins.append(self)
        setattr(self.owner, self.name, ours)


def wake(reason: str) -> "Any":
    """Load the guard, have it take over if that has not happened, and return its core."""
    return _woken(reason).activation.core


def load(name: str) -> "Any":
    """Return a module of ours, imported past the program's hooks."""
    _found("cudaguard.hooks")
    return _found("cudaguard.hooks.own_imports").load(name)


def _found(name: str) -> "Any":
    """Return a module that is loaded before the one that imports all others can be."""
    if name not in sys.modules:
        parent, _, child = name.rpartition(".")
        spec: Any = PathFinder.find_spec(name, sys.modules[parent].__path__)
        module = module_from_spec(spec)
        # The builtins as they are, but for what the program has made of `__import__`.
        vars(module)["__builtins__"] = {**vars(sys.modules["builtins"]), "__import__": _import}
        spec.loader.exec_module(module)
        # Another thread may have been first.
        setattr(sys.modules[parent], child, sys.modules.setdefault(name, module))
    return sys.modules[name]


def may_wake() -> bool:
    """Return True if the guard may be woken; not while the interpreter ends."""
    return kernel is not None and kernel.asked is not None and sys.meta_path is not None


def core_for(judge: "Callable[..., str]", *args: object) -> "Any":
    """Return the core of the guard if that is awake, or has to be for the reason of `judge`."""
    try:
        if not may_wake():
            return None if kernel is None else kernel.core
        reason = judge(*args)
        return wake(reason) if reason else None
    except contained():
        return None


def _patch_extensions() -> None:
    what = "importlib.machinery.ExtensionFileLoader.create_module"
    stand_in = StandIn(what, ExtensionFileLoader, "create_module")
    original = stand_in.original

    @of_import_system
    def create_module(loader: ExtensionFileLoader, spec: "ModuleSpec") -> "Any":
        core, is_asleep = None, False
        try:
            if stand_in.is_installed:
                is_asleep = may_wake()
                why = _why_extension(spec) if is_asleep else ""
                core = wake(why) if why else None if kernel is None else kernel.core
        except contained():
            core = None
        try:
            if core is not None:
                return core.extensions.load(original, loader, spec)
            try:
                module = original(loader, spec)
            except ImportError as error:
                core = core_for(_why_extension, spec, True) if is_asleep else None
                if core is None:
                    raise
                hide_frame(error)
                return core.extensions.load(original, loader, spec, error)
        except BaseException as error:
            hide_frame(error)
            raise
        loads = kernel.loads if is_asleep else None
        if loads is not None and (loads.loader.alone is not spec or not loads.TINY * loads.HALF):
            loads.look_after("mapped by", spec, lambda core: core.extensions.ended(spec))
        return module

    stand_in.put(create_module)


def _why_extension(spec: "ModuleSpec", is_refused: bool = False) -> str:
    """Return what concerns the guard in an extension to be mapped, or just refused, in words."""
    name, file = getattr(spec, "name", None), getattr(spec, "origin", None)
    if type(name) is not str or type(file) is not str or (LIB_DYNLOAD in file and not is_refused):
        return ""
    why = "" if is_refused else (kernel.loads or kernel.of_loads()).why_extension(spec, name, file)
    return f"extension {name}, which was refused" if is_refused else why


class _SetFlags:
    """Looks like the function it replaces, and like that binds to no instance or class."""

    def __init__(self, stand_in: "StandIn") -> None:
        self._stand_in, self._original = stand_in, stand_in.original
        self.__module__, self.__doc__ = self._original.__module__, self._original.__doc__

    def __call__(self, *args: "Any", **kwargs: "Any") -> None:
        try:
            core = core_for(_why_flags, args, kwargs) if self._stand_in.is_installed else None
            frame = None if core is None else sys._getframe().f_back
        except contained():
            core = None
        try:
            if core is None:
                self._original(*args, **kwargs)
            else:
                core.flags.call(self._original, frame, args, kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    @property  # type: ignore[misc]  # a class that shows another one, as weakref.proxy does
    def __class__(self) -> "type":
        return type(self._original)

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._original, name)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce__(self) -> str:
        return str(self._original.__name__)  # found by that in its module


def _why_flags(args: "tuple[Any, ...]", kwargs: "dict[str, Any]") -> str:
    is_local = len(args) == 1 and type(args[0]) is int and not (kwargs or args[0] & RTLD_GLOBAL)
    return "" if is_local else "sys.setdlopenflags(), which makes extensions global"


def has_ctypes() -> bool:
    """Return True if all that matters of ctypes is there, and was not lazily put off."""
    module = sys.modules.get("ctypes")
    return module is not None and "pythonapi" in object.__getattribute__(module, "__dict__")


def watch_ctypes() -> None:
    """Watch the loads of ctypes, if it is there; again if it was reloaded."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None and RTLD_GLOBAL:
        there = object.__getattribute__(ctypes, "__dict__").get("CDLL")
        if there is not kernel.cdll and has_ctypes():  # it has come, or another in its place
            kernel.cdll = there
            why = kernel.of_loads().watch(ctypes)
            if why and may_wake():
                wake(why)


class Guard:
    """Handle of the installed guard; as a context manager it uninstalls at the end."""

    @property
    def mode(self) -> str:
        """The mode in force, one of ``off``, ``observe``, ``warn``, ``fix`` and ``strict``."""
        return str(wake("a look at the mode").reporter.mode)

    def uninstall(self) -> None:
        """Take the guard down (see `cudaguard.uninstall`)."""
        _woken("uninstall()").uninstall()

    def __enter__(self) -> "Self":
        _woken("a with statement").note_block(sys._getframe(1))
        return self

    def __exit__(self, kind: object, error: "BaseException | None", traceback: object) -> None:
        sys.modules["cudaguard.api"].leave(error)

    def __repr__(self) -> str:
        return f"<cudaguard.Guard, mode {self.mode}>"


GUARD = Guard()


def install(mode: "object", *settings: object) -> Guard:
    """Put the guard up, or have the kernel stand in for it: see `cudaguard.install`."""
    word = mode if isinstance(mode, str) and mode in _MODES.values() else None
    is_usual = all(one is other for one, other in zip(settings, ((), (), (), None, None, False)))
    try:
        why = install_kernel(word) if word is mode and is_usual else "install() with settings"
    except contained():
        return GUARD
    if why:
        _woken(why).install(mode, *settings)
    return GUARD


def boot() -> None:
    """Put the guard up as ``CUDAGUARD`` says; once: virtual environments process ``.pth`` twice."""
    why = install_kernel(None, is_alone=True) if kernel.asked is None else ""
    if why:
        _woken(why).boot()


def install_kernel(mode: "str | None", *, is_alone: bool = False) -> str:
    """Have the kernel stand in for the guard; return why that is not possible, empty if it is."""
    if "cudaguard.api" in sys.modules:
        return "install()"
    word = os.environ.get("CUDAGUARD", "").strip().lower()
    if word in ("off", "0", "false", "no") and kernel.asked is None:
        return ""
    if word and word not in _MODES:
        return f"CUDAGUARD={word}"
    variable = next((name for name in os.environ if name.startswith("CUDAGUARD_")), "")
    if variable:
        return f"environment variable {variable}"
    if kernel.asked is not None:
        kernel.asked, kernel.mode = (mode or kernel.asked[0], False), _MODES.get(word, "")
        is_first = sys.meta_path and sys.meta_path[0] is kernel
        return "" if is_first else "another finder was put in front"
    if early := _WATCHED.keys() & sys.modules.keys():
        return f"{min(early)}, which was imported before"
    if kernel.has_plugins():
        return "a rule plug-in"
    kernel.asked, kernel.mode, kernel.pid = (mode, is_alone), _MODES.get(word, ""), SYSTEM.getpid()
    kernel.watched = {**_WATCHED, "ctypes": None, _END_OF_CTYPES: None}
    sys.meta_path.insert(0, kernel)
    kernel.patch()
    return ""


def distributions(path: "Iterable[object]", known: "Iterable[object]" = ()) -> "Iterator[str]":
    """Yield the folders that describe what is installed in folders of ``sys.path``, but `known`."""
    own = os.__file__.rpartition(os.sep)[0]  # of the standard library
    for folder in path:
        if not isinstance(folder, str) or folder in (own, f"{own}{LIB_DYNLOAD[:-1]}", *known):
            continue
        try:
            names = _listdir(folder or ".") if _access(folder or ".", 0) else ()
        except failures():  # a zip file, or a folder that may not be read
            continue
        for name in [one for one in names if one.endswith((".dist-info", ".egg-info"))]:
            yield f"{folder or '.'}/{name}"


def start_of(path: str) -> bytes:
    """Return what is in a small file; nothing of what is no regular one, or cannot be read."""
    try:
        if SYSTEM.stat(path).st_mode & 0xF000 != 0x8000:  # before it is opened: that wakes a pipe
            return b""
        file = _open(path, FLAGS)
        try:
            return bytes(_read(file, 1 << 20))
        finally:
            _close(file)
    except failures():
        return b""


def _woken(reason: str) -> "Any":
    api = load("cudaguard.api")
    api.activation.take_over(reason)
    return api
