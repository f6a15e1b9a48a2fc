"""Imports of our own, past what the program has done to importing.

A program may replace ``builtins.__import__`` and put finders on ``sys.meta_path`` that count,
refuse or raise: that is for what the program imports. The modules of the guard are loaded here
instead, and get builtins of their own, whose ``__import__`` is the one below: so every import
statement of theirs comes by here, at the top of a module as in a function.

Modules of the standard library are found as ever, since a finder may be there to change them; but
where files of the program have their names, we use copies. One that is refused is not there for us,
and nothing is said of it.
"""

from __future__ import annotations

import builtins
import sys
from _frozen_importlib import (  # type: ignore[attr-defined]  # light: `importlib` is not
    _gcd_import,
    _lock_unlock_module,
    _ModuleLockManager,
    module_from_spec,
)
from _frozen_importlib_external import PathFinder
from _thread import _local

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_GUARD = __name__.partition(".")[0]
# `depth`: of how many modules of ours this thread is in the import; `after`: called once in none.
_importing = _local()
# By whoever knows (see `hooks.barrier`): this module comes before all others.
is_refusal: Callable[[Exception], bool] = bool
_FIRST = frozenset((*sys.builtin_module_names, "__future__", "io", "os", "stat"))  # without `site`


def standard_library() -> frozenset[str]:
    """Return the names of the modules that come with Python."""
    home = _home()
    if hasattr(sys, "stdlib_module_names") or not home:
        return getattr(sys, "stdlib_module_names", _FIRST)
    return _FIRST.union(file.partition(".")[0] for file in sys.modules["os"].listdir(home))


def _home() -> str:
    """Return the folder of the standard library; empty as long as nothing of it is there."""
    os: Any = sys.modules.get("os")
    return str(os.__file__.rpartition(os.sep)[0]) if os else ""


# A package without a folder: of what the program is not to see, or has modules of that name.
_COPIES = f"{_GUARD}.copies"
# Have a state that all share, are patched, or are what finders use.
_SHARED = ("_ctypes", "ctypes", "importlib", "multiprocessing", "warnings")
_hiding: dict[str, tuple[int, bool]] = {}  # of folders: when they were changed, and `_hides`
# What we require of others and import lazily; see `use_dependencies_in`.
_DEPENDENCIES = frozenset(("packaging", "pynvml", "tomli", "wrapt"))
_dependencies_in = ""
# Modules of the standard library that we have used. A program may forget them, block them by None,
# or be importing them again.
_used: dict[str, Any] = {}


class RefusedImportError(ImportError):
    """The program refuses us a module."""


def load(name: str) -> Any:
    """Return a module of ours, imported if it is not there yet.

    Raises:
        ImportError: It cannot be.
    """
    if (module := sys.modules.get(name)) is None:
        return _find_and_load(name)
    if getattr(module.__spec__, "_initializing", False):  # by another thread, or further out
        _lock_unlock_module(name)
        return sys.modules.get(name, module)
    return module


def use_dependencies_in(folder: str) -> None:
    """Take what we depend on from a folder if the program's environment lacks it.

    `cudaguard run` guards Pythons of other environments. These modules get names of ours.
    """
    global _dependencies_in  # noqa: PLW0603  # set once, at start-up
    _dependencies_in = folder


def is_put_off(call: Callable[[], None]) -> bool:
    """Return True if a module of ours is half imported here; this is called once none is.

    What we import may make something of ours act that needs the very module that imports it.
    """
    if not _importing.__dict__.get("depth"):
        return False
    _importing.after = call
    return True


# Named as the function of importlib that import statements call: `hooks.caller` looks for it.
def _find_and_load(name: str) -> Any:
    here = _importing.__dict__
    here["depth"] = here.get("depth", 0) + 1
    try:
        return _found_and_loaded(name)
    finally:
        here["depth"] -= 1
        if not here["depth"] and "after" in here:
            here.pop("after")()


def _found_and_loaded(name: str) -> Any:
    parent, _, child = name.rpartition(".")
    if not parent:  # the program has forgotten all that it has imported
        return _gcd_import(name)
    package = load(parent)
    with _ModuleLockManager(name):
        if (module := sys.modules.get(name)) is not None:
            return module
        spec: Any = PathFinder.find_spec(name, package.__path__)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module = module_from_spec(spec)
        vars(module)["__builtins__"] = _BUILTINS
        spec._initializing = True
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
        finally:
            spec._initializing = False
        setattr(package, child, module)
    return module


def _import(
    name: str, _globals: Any = None, _locals: Any = None, fromlist: Any = (), level: int = 0
) -> ModuleType:
    """Import for our own modules and copies, as ``builtins.__import__`` is called.

    What the program has made of ``__import__`` is not asked for packages of others either:
    PySide6's looks into the builtins of its caller, and ends the process over ours.
    """
    if level:  # of a copy: none of ours imports relatively
        package = _globals["__package__"].rsplit(".", level - 1)[0]
        name = f"{package}.{name}" if name else package
    top = name.partition(".")[0]
    find = load if top == _GUARD else _standard if top in standard_library() else _of_others
    module: ModuleType = find(name)
    if not fromlist:
        copy = f"{_COPIES}.{top}" if module is sys.modules.get(f"{_COPIES}.{name}") else ""
        return module if top == name else load(copy) if copy else find(top)
    for child in fromlist if hasattr(module, "__path__") else ():
        if not hasattr(module, child):
            try:
                find(f"{name}.{child}")
            except ModuleNotFoundError as error:  # it is no module
                if not f".{error.name}".endswith(f".{name}.{child}"):
                    raise
    return module


def _of_others(name: str) -> Any:
    top = name.partition(".")[0]
    try:
        return _gcd_import(name)
    except ModuleNotFoundError as error:
        if error.name != top or top not in _DEPENDENCIES or not _dependencies_in:
            raise
    return _copy_of(name)


def _copy_of(name: str) -> Any:
    """Return a module under a name that no program asks for."""
    if _COPIES not in sys.modules:
        package = type(sys)(_COPIES)
        of_c = [f for f in sys.path if isinstance(f, str) and f.endswith(("lib-dynload", "DLLs"))]
        package.__path__ = [*filter(None, (_home(), *of_c, _dependencies_in))]
        sys.modules.setdefault(_COPIES, package)
    return load(f"{_COPIES}.{name}")


def _is_hidden(name: str) -> bool:
    """Return True if a file of the program's may be taken for the module, or what it needs."""
    home, top, module = _home(), name.partition(".")[0], sys.modules.get(name)
    if top in sys.builtin_module_names or top in _SHARED or not home:
        return False
    origin = str(getattr(getattr(module, "__spec__", None), "origin", None) or home)
    if module is not None and origin.startswith((home, "frozen")):
        return False
    folders = [folder for folder in sys.path if isinstance(folder, str)]
    before = folders[: folders.index(home)] if home in folders else folders
    return any(_hides(folder or ".") for folder in before)


def _hides(folder: str) -> bool:
    """Return True if a folder has modules with names of the standard library's."""
    names, kernel = standard_library() - {"test"}, load(f"{_GUARD}.kernel")
    access = kernel.SYSTEM.access
    try:
        changed = kernel.SYSTEM.stat(folder).st_mtime_ns
        if _hiding.get(folder, (0, False))[0] != changed:
            files = (file.partition(".") for file in kernel.SYSTEM.listdir(folder))
            ends = [(top, end) for top, _, end in files if top in names]
            of_code = ("py", "pyc", "so", "pyd")
            found = (e.endswith(of_code) or access(f"{folder}/{t}/__init__.py", 0) for t, e in ends)
            _hiding[folder] = changed, any(found)
        return _hiding[folder][1]
    except kernel.failures():  # not there, a zip file, or one that may not be read
        return False


def _standard(name: str) -> Any:
    """Return a module of the standard library: objects of two imports need not go together."""
    if name in _used:
        return _used[name]
    is_hidden = _is_hidden(name)
    module = None if is_hidden else sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        _used[name] = module
        return module
    try:
        _used[name] = _copy_of(name) if is_hidden else _gcd_import(name)
        return _used[name]
    except Exception as error:
        blocked = getattr(error, "name", None) or ""
        if not is_refusal(error) and sys.modules.get(blocked, blocked) is not None:
            raise
    raise RefusedImportError(f"import of {name} refused by the program", name=name)


_BUILTINS = {**vars(builtins), "__import__": _import}
