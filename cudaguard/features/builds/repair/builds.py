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
from cudaguard.core.patterns import values_of
from cudaguard.core.replace import Replaced
from cudaguard.core.request import Done, WouldDo
from cudaguard.features.builds import policy
from cudaguard.features.builds.messages import builds as wording
from cudaguard.features.builds.repair.actions import (
    VARIABLES,
    have_all_compiled,
    read_stamp,
    write_stamp,
)
from cudaguard.features.builds.repair.tools import Toolkit, variables_for
from cudaguard.files import ours
from cudaguard.system.extensions.judgement import check_extension

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from cudaguard.core.permit import Permit
    from cudaguard.core.request import Request

    Make = Callable[[Any, Permit], Any]

MODULE = "torch.utils.cpp_extension"
_BUILD = "_write_ninja_file_and_build_library"  # of load() and load_inline(), under their lock
_NEEDED = {"name", "sources", "build_directory", "with_cuda", "extra_cuda_cflags"}
_FORKS = (
    "os.register_at_fork: puts back what other threads have set for a build; silent after uninstall"
)
_VERB = "prepare_builds"
_BY_NVML = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def ask_nvml(request: Request) -> Callable[[BaseException | None], None] | None:
    """Have torch ask NVML, not CUDA, whether there is a GPU while the module is imported.

    It asks for the sake of a message, and CUDA would be initialized by that.
    """
    (name,) = _BY_NVML
    torch = sys.modules.get("torch")
    has_cuda = getattr(getattr(torch, "version", None), "cuda", None)
    if request.name != MODULE or not has_cuda or name in os.environ or not request.permit.acts:
        return None
    during = ExitStack()
    during.enter_context(_during(request, _BY_NVML))
    return lambda _: during.close()


def _during(request: Request, variables: Mapping[str, str]) -> AbstractContextManager[None]:
    """Return what has variables set while a build lasts."""
    if variables:
        request.reporter.changed(_FORKS, stays=True)
    return VARIABLES.during(variables)


def put_up(request: Request) -> None:
    """Replace what builds go through, as far as this torch has it."""
    cpp_extension: Any = sys.modules.get(request.name)
    if request.name != MODULE or cpp_extension is None or not sys.platform.startswith("linux"):
        return
    rule = request.rule
    # From 2.14 on torch holds a lock that ends with its holder.
    if values_of(rule, "break_stale_locks") and "FileLock" not in vars(cpp_extension):
        _replace(request, cpp_extension, "FileBaton", functools.partial(_lock, request))
    if values_of(rule, "prepare_builds"):
        toolkit = Toolkit(request, cpp_extension)
        build = functools.partial(_jit, request, toolkit)
        _replace(request, cpp_extension, _BUILD, build)
        home = functools.partial(_home, request, toolkit)
        _replace(request, cpp_extension, "_join_cuda_home", home)
        # Torch 2.13 defers the import of setuptools' command until the class is asked for.
        there = vars(cpp_extension)
        command = there.get("_BUILD_EXTENSION_CLASS") or there.get("BuildExtension")
        _replace(request, command, "__init__", functools.partial(_begin, request))
        ahead = functools.partial(_ahead_of_time, request, toolkit)
        _replace(request, command, "build_extensions", ahead)


def _replace(request: Request, owner: Any, name: str, make: Make) -> None:
    place = f"{MODULE}.{'' if inspect.ismodule(owner) else 'BuildExtension.'}{name}"
    original = vars(owner).get(name) if owner is not None else None

    def put(_: object, permit: Permit) -> Replaced:
        ours = None if original is None else make(original, permit)
        if ours is None:
            raise LookupError(place)
        return Replaced(owner, name, ours)

    try:
        request.put(place, owner, put)
    except LookupError:
        request.tell(WouldDo(wording.no_such_entry(request.rule.id, place)))


def _lock(request: Request, original: Any, permit: Permit) -> Any:
    from cudaguard.features.builds.repair.locks import lock_class

    if not (isinstance(original, type) and hasattr(original, "try_acquire")):
        return None
    return lock_class(request, original, permit)


def _home(request: Request, toolkit: Toolkit, original: Any, permit: Permit) -> Any:
    @functools.wraps(original)
    def _join_cuda_home(*paths: Any) -> Any:
        if permit.looks:
            _safely(request, "looking at CUDA_HOME", toolkit.is_wanted)
        return original(*paths)

    return _join_cuda_home


def _jit(request: Request, toolkit: Toolkit, original: Any, permit: Permit) -> Any:
    try:
        signature = inspect.signature(original)
    except (TypeError, ValueError):
        return None
    if not set(signature.parameters) >= _NEEDED:
        return None

    @functools.wraps(original)
    def build(*args: Any, **keywords: Any) -> Any:
        if not permit.looks:
            return original(*args, **keywords)
        given: dict[str, Any] = {}
        variables: dict[str, str] = {}

        def prepare() -> None:
            given.update(signature.bind(*args, **keywords).arguments)
            _look_at_cache(request, permit, given)
            sources, flags = list(given["sources"]), list(given["extra_cuda_cflags"] or ())
            variables.update(
                variables_for(
                    request, permit, toolkit, sources, flags,
                    with_cuda=given["with_cuda"], is_jit=True,
                )
            )  # fmt: skip

        _safely(request, "preparing a build", prepare)
        with _during(request, variables):
            result = original(*args, **keywords)
        if permit.acts:
            _safely(request, "marking a build", lambda: _mark(request, given["build_directory"]))
        return result

    return build


def _begin(request: Request, original: Any, permit: Permit) -> Any:
    @functools.wraps(original)
    def begin(self: Any, *args: Any, **keywords: Any) -> None:
        variables: dict[str, str] = {}
        if permit.acts:
            from cudaguard.features.builds.repair.tools import path_with_ninja

            find = functools.partial(path_with_ninja, request)
            _safely(request, "looking for ninja", lambda: variables.update(find()))
        with _during(request, variables):
            original(self, *args, **keywords)

    return begin


def _ahead_of_time(request: Request, toolkit: Toolkit, original: Any, permit: Permit) -> Any:
    @functools.wraps(original)
    def build_extensions(self: Any) -> None:
        if not permit.looks:
            original(self)
            return
        variables: dict[str, str] = {}

        def prepare() -> None:
            parts = [list(map(str, one.sources)) for one in self.extensions]
            sources = [source for part in parts for source in part]
            variables.update(
                variables_for(
                    request, permit, toolkit, max(parts, key=len, default=[]),
                    _shared_flags(self.extensions), is_jit=False,
                    with_cuda=any(source.endswith((".cu", ".cuh")) for source in sources),
                )
            )  # fmt: skip

        _safely(request, "preparing a build", prepare)
        with _during(request, variables):
            original(self)
        _safely(request, "looking at what was built", lambda: _look_at_results(request, self))

    return build_extensions


def _shared_flags(extensions: Any) -> list[str]:
    """Return the flags for nvcc that all extensions have."""
    found: list[set[str]] = []
    for one in extensions:
        flags = one.extra_compile_args
        found.append(set(flags.get("nvcc", ()) if isinstance(flags, dict) else flags or ()))
    return sorted(set.intersection(*found)) if found else []


def _safely(request: Request, what: str, do: Callable[[], object]) -> None:
    """Do something of ours: its failure costs the program nothing."""
    try:
        do()
    except ON_PURPOSE:
        raise
    except ours(Exception) as error:
        request.reporter.broken(what, error)


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


def _look_at_cache(request: Request, permit: Permit, given: dict[str, Any]) -> None:
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
    frame = frame_outside_of("torch")
    finding = wording.out_of_date(library, tuple(reasons), is_rebuilt=permit.acts)
    if permit.acts:
        have_all_compiled(folder)
        how = wording.compiled_again(reasons)
        request.tell(Done(library, how, verb=_VERB, stays=False, left=finding), frame)
    else:
        request.tell(WouldDo(finding), frame)


def _mark(request: Request, folder: str) -> None:
    stamp = _stamp()
    if read_stamp(folder) != stamp:
        file = write_stamp(folder, stamp)
        request.reporter.changed(f"{file}: says for which torch it was built", stays=True)


def _look_at_results(request: Request, command: Any) -> None:
    for extension in command.extensions:
        path = command.get_ext_fullpath(extension.name)
        if os.path.exists(path):
            check = check_extension(path, assume_imported=("torch",))
            if policy.is_final(check.cause):
                frame = frame_outside_of("torch")
                request.tell(WouldDo(wording.would_not_load(check)), frame)
