"""Builds with ``torch.utils.cpp_extension``: looked at before, helped along, looked at after."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
from contextlib import ExitStack

from cudaguard.core.caller import frame_outside_of
from cudaguard.core.loader import ON_PURPOSE
from cudaguard.core.patterns import arguments
from cudaguard.core.repair import REPAIRING
from cudaguard.core.replace import Replaced, Switch
from cudaguard.errors import ExtensionWarning
from cudaguard.features.builds import policy
from cudaguard.features.builds.messages import builds as wording
from cudaguard.features.builds.repair.actions import (
    VARIABLES,
    have_all_compiled,
    read_stamp,
    write_stamp,
)
from cudaguard.features.builds.repair.tools import Toolkit, variables_for
from cudaguard.features.extensions.repair import check_extension

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from importlib.machinery import ModuleSpec
    from typing import Any

    from cudaguard.core.host import Close
    from cudaguard.core.repair import Engine
    from cudaguard.model import Rule

MODULE = "torch.utils.cpp_extension"
_BUILD = "_write_ninja_file_and_build_library"  # of load() and load_inline(), under their lock
_NEEDED = {"name", "sources", "build_directory", "with_cuda", "extra_cuda_cflags"}
_FORKS = (
    "os.register_at_fork: puts back what other threads have set for a build (stays, and does "
    "nothing after uninstall)"
)
_BY_NVML = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def ask_nvml(engine: Engine, spec: ModuleSpec) -> Close | None:
    """Have torch ask NVML, not CUDA, whether there is a GPU while the module is imported.

    It asks for the sake of a message, and CUDA would be initialised by that.
    """
    (name,) = _BY_NVML
    torch = sys.modules.get("torch")
    has_cuda = getattr(getattr(torch, "version", None), "cuda", None)
    if spec.name != MODULE or not has_cuda or name in os.environ or engine.mode not in REPAIRING:
        return None
    during = ExitStack()
    during.enter_context(_during(engine, _BY_NVML))
    return lambda _: during.close()


def _during(engine: Engine, variables: Mapping[str, str]) -> AbstractContextManager[None]:
    """Return what has variables set while a build lasts."""
    if variables:
        engine.changes[_FORKS] = None
    return VARIABLES.during(variables)


def put_up(engine: Engine, rule: Rule, module: str) -> None:
    """Replace what a rule with the action ``builds`` is about, as far as this torch has it."""
    cpp_extension: Any = sys.modules.get(module)
    if module != MODULE or cpp_extension is None or not sys.platform.startswith("linux"):
        return
    # From 2.14 on torch holds a lock that ends with its holder.
    if "lock" in arguments(rule, "builds") and "FileLock" not in vars(cpp_extension):
        _replace(engine, rule, cpp_extension, "FileBaton", functools.partial(_lock, engine, rule))
    if "check" in arguments(rule, "builds"):
        toolkit = Toolkit(engine, cpp_extension)
        build = functools.partial(_jit, engine, rule, toolkit)
        _replace(engine, rule, cpp_extension, _BUILD, build)
        home = functools.partial(_home, engine, toolkit)
        _replace(engine, rule, cpp_extension, "_join_cuda_home", home)
        # Torch 2.13 defers the import of setuptools' command until the class is asked for.
        there = vars(cpp_extension)
        command = there.get("_BUILD_EXTENSION_CLASS") or there.get("BuildExtension")
        begin = functools.partial(_begin, engine, rule)
        _replace(engine, rule, command, "__init__", begin)
        ahead = functools.partial(_ahead_of_time, engine, rule, toolkit)
        _replace(engine, rule, command, "build_extensions", ahead)


def _replace(
    engine: Engine, rule: Rule, owner: Any, name: str, make: Callable[[Any, Switch], Any]
) -> None:
    place = f"{MODULE}.{'' if inspect.ismodule(owner) else 'BuildExtension.'}{name}"
    there = engine.replaced.get(place)
    if there is not None:
        if there.is_in_place(owner):
            return
        there.undo()  # the module was loaded anew
    original = vars(owner).get(name) if owner is not None else None
    switch = Switch()
    ours = None if original is None else make(original, switch)
    if ours is None:
        engine.tell(wording.no_such_entry(rule.id, place), ExtensionWarning, loud=False)
        return
    engine.replace(place, Replaced(owner, name, ours, switch))


def _lock(engine: Engine, rule: Rule, original: Any, switch: Switch) -> Any:
    from cudaguard.features.builds.repair.locks import lock_class

    if not (isinstance(original, type) and hasattr(original, "try_acquire")):
        return None
    return lock_class(engine, rule.id, original, switch)


def _home(engine: Engine, toolkit: Toolkit, original: Any, switch: Switch) -> Any:
    @functools.wraps(original)
    def _join_cuda_home(*paths: Any) -> Any:
        if switch.is_on and engine.mode != "off":
            _safely(engine, "looking at CUDA_HOME", toolkit.is_wanted)
        return original(*paths)

    return _join_cuda_home


def _jit(engine: Engine, rule: Rule, toolkit: Toolkit, original: Any, switch: Switch) -> Any:
    try:
        signature = inspect.signature(original)
    except (TypeError, ValueError):
        return None
    if not set(signature.parameters) >= _NEEDED:
        return None

    @functools.wraps(original)
    def build(*args: Any, **keywords: Any) -> Any:
        if not switch.is_on or engine.mode == "off":
            return original(*args, **keywords)
        given: dict[str, Any] = {}
        variables: dict[str, str] = {}

        def prepare() -> None:
            given.update(signature.bind(*args, **keywords).arguments)
            _look_at_cache(engine, given)
            sources, flags = list(given["sources"]), list(given["extra_cuda_cflags"] or ())
            variables.update(
                variables_for(
                    engine, rule.id, toolkit, sources, flags,
                    with_cuda=given["with_cuda"], is_jit=True,
                )
            )  # fmt: skip

        _safely(engine, "preparing a build", prepare)
        with _during(engine, variables):
            result = original(*args, **keywords)
        _safely(engine, "marking a build", lambda: _mark(engine, given["build_directory"]))
        return result

    return build


def _begin(engine: Engine, rule: Rule, original: Any, switch: Switch) -> Any:
    @functools.wraps(original)
    def begin(self: Any, *args: Any, **keywords: Any) -> None:
        variables: dict[str, str] = {}
        if switch.is_on and engine.mode in REPAIRING:
            from cudaguard.features.builds.repair.tools import path_with_ninja

            find = functools.partial(path_with_ninja, engine, rule.id)
            _safely(engine, "looking for ninja", lambda: variables.update(find()))
        with _during(engine, variables):
            original(self, *args, **keywords)

    return begin


def _ahead_of_time(
    engine: Engine, rule: Rule, toolkit: Toolkit, original: Any, switch: Switch
) -> Any:
    @functools.wraps(original)
    def build_extensions(self: Any) -> None:
        if not switch.is_on or engine.mode == "off":
            original(self)
            return
        variables: dict[str, str] = {}

        def prepare() -> None:
            parts = [list(map(str, one.sources)) for one in self.extensions]
            sources = [source for part in parts for source in part]
            variables.update(
                variables_for(
                    engine, rule.id, toolkit, max(parts, key=len, default=[]),
                    _shared_flags(self.extensions), is_jit=False,
                    with_cuda=any(source.endswith((".cu", ".cuh")) for source in sources),
                )
            )  # fmt: skip

        _safely(engine, "preparing a build", prepare)
        with _during(engine, variables):
            original(self)
        _safely(engine, "looking at what was built", lambda: _look_at_results(engine, self))

    return build_extensions


def _shared_flags(extensions: Any) -> list[str]:
    """Return the flags for nvcc that all extensions have."""
    found: list[set[str]] = []
    for one in extensions:
        flags = one.extra_compile_args
        found.append(set(flags.get("nvcc", ()) if isinstance(flags, dict) else flags or ()))
    return sorted(set.intersection(*found)) if found else []


def _safely(engine: Engine, what: str, do: Callable[[], object]) -> None:
    """Do something of ours: its failure costs the program nothing."""
    try:
        do()
    except ON_PURPOSE:
        raise
    except Exception as error:
        engine.broken(what, error)


# --- what was built ----------------------------------------------------------------------------


def _stamp() -> dict[str, str]:
    """Return what an extension that is built now is built for."""
    torch: Any = sys.modules["torch"]
    return {
        "torch": str(torch.__version__),
        "commit": str(getattr(torch.version, "git_version", "")),
        "C++ ABI": str(int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", 1))),
        "CUDA": str(torch.version.cuda or ""),
        "Python": str(sysconfig.get_config_var("SOABI") or ""),
    }


def _look_at_cache(engine: Engine, given: dict[str, Any]) -> None:
    """Have an extension compiled anew that was built for another torch, or is damaged."""
    folder = os.path.abspath(given["build_directory"])
    library = os.path.join(folder, f"{given['name']}.so")
    if not os.path.exists(library):
        return
    stamp = read_stamp(folder)
    reasons = policy.differences(stamp, _stamp())
    if not reasons:
        check = check_extension(library, assume_imported=("torch",))
        if not policy.is_to_be_rebuilt(check.cause, is_stamped=bool(stamp)):
            return
        reasons = [check.message]
    is_repairing = engine.mode in REPAIRING
    if is_repairing:
        have_all_compiled(folder)
        engine.log(f"{library} is compiled anew: {'; '.join(reasons)}")
        engine.journal.note("repair", f"compiled anew: {library}")
    finding = wording.out_of_date(library, tuple(reasons), is_rebuilt=is_repairing)
    engine.tell(finding, ExtensionWarning, frame=frame_outside_of("torch"))


def _mark(engine: Engine, folder: str) -> None:
    if engine.mode in REPAIRING:
        stamp = _stamp()
        if read_stamp(folder) != stamp:
            file = write_stamp(folder, stamp)
            engine.changes[f"{file}: says for which torch it was built (stays)"] = None


def _look_at_results(engine: Engine, command: Any) -> None:
    for extension in command.extensions:
        path = command.get_ext_fullpath(extension.name)
        if os.path.exists(path):
            check = check_extension(path, assume_imported=("torch",))
            if policy.is_final(check.cause):
                frame = frame_outside_of("torch")
                engine.tell(wording.would_not_load(check), ExtensionWarning, frame=frame)
