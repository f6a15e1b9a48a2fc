"""What is said of an extension that would not load: the cause, and what to do."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.files import os
from cudaguard.system.name_owners import cuda_of, owner_of, requirement_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudaguard.elf.extension_check import Forecast, Lack, Surroundings

_SHOWN = 3  # names in a sentence
# What the guard itself has looked through: whatever else an extension names may have a function.
_WELL_KNOWN = ("ld-linux", "libc.so", "libdl.so", "libgcc_s.so", "libm.so", "libpthread.so",
               "librt.so", "libstdc++.so", "libgomp.so", "libpython", "libc10", "libtorch",
               "libcuda", "libcudart", "libcublas", "libcudnn", "libnv")  # fmt: skip

# What is known to have a library: what to install where it is nowhere.
_PACKAGES = {
    "libcuda.so": "install the NVIDIA driver, or start a container with --gpus all",
    "libnvidia-ml.so": "install the NVIDIA driver, or start a container with --gpus all",
    "libGL.so": "install it: apt-get install libgl1",
    "libglib-2.0.so": "install it: apt-get install libglib2.0-0",
    "libgthread-2.0.so": "install it: apt-get install libglib2.0-0",
    "libgomp.so": "install it: apt-get install libgomp1",
    "libstdc++.so": "install it: apt-get install libstdc++6",
}
# What else than CUDA a torch may be built for, by one of its libraries.
_ACCELERATED = {"libc10_hip.so": "ROCm", "libc10_xpu.so": "XPU"}
_TORCH_CUDA = "install a CUDA build of torch (https://pytorch.org/get-started/locally)"
_REBUILD = (
    "rebuild it in this environment: pip install --no-build-isolation --no-cache-dir "
    "--force-reinstall --no-deps PACKAGE (for a JIT build: delete its build folder)"
)


class _Case(NamedTuple):
    """What the sentences are made of."""

    file: str
    torch: str
    libraries: str
    functions: str
    about: tuple[Lack, ...]
    found: Forecast
    around: Surroundings


def words_for(
    cause: str,
    about: tuple[Lack, ...],
    found: Forecast,
    around: Surroundings,
    readable: Mapping[str, str],
) -> tuple[str, str]:
    """Return the message and the remedy for a cause.

    Args:
        cause: One of `cudaguard.elf.extension_check.CAUSES`.
        about: The libraries, versions or symbols that it is about.
        found: What the loader would meet.
        around: What extensions are built for here.
        readable: Symbol -> how it stands in the source.
    """
    names = list(dict.fromkeys(lack.name for lack in about))
    case = _Case(
        os.path.basename(found.path),
        f"torch {around.torch}" if around.torch else "torch",
        _list(names),
        _list([readable.get(name, name) for name in names], "`{}`"),
        about,
        found,
        around,
    )
    return _WORDS[cause](case)


def _truncated(case: _Case) -> tuple[str, str]:
    message = (
        f"{case.file} is truncated ({case.found.detail}), probably by an interrupted build or copy"
    )
    return message, "delete the file, and build or install it again"


def _not_elf(case: _Case) -> tuple[str, str]:
    return (
        f"{case.file} is not a loadable library: {case.found.detail}",
        "build or install it again",
    )


def _wrong_machine(case: _Case) -> tuple[str, str]:
    message = f"{case.file} was built for another machine: {case.found.detail}"
    return message, "install the package for this machine, or build it here"


def _torch_not_imported(case: _Case) -> tuple[str, str]:
    if not case.around.torch:
        return f"{case.file} needs {case.libraries}, but torch is not installed", "install torch"
    message = f"{case.file} needs {case.libraries}, which is found only after `import torch`"
    return message, "import torch before it"


def _torch_flavor(case: _Case) -> tuple[str, str]:
    cuda, libraries = case.around.cuda, case.around.torch_libraries
    others = (name for file, name in _ACCELERATED.items() if file in libraries)
    built_for = f"CUDA {cuda}" if cuda else next(others, "the CPU")
    message = f"{case.file} needs {case.libraries}, but {case.torch} is a build for {built_for}"
    if cuda:
        return message, f"install the torch that it was built for, or {_REBUILD}"
    return message, f"{_TORCH_CUDA}, or build the extension without CUDA"


def _cuda_major(case: _Case) -> tuple[str, str]:
    if case.found.libraries:
        cuda = case.around.cuda
        message = (
            f"{case.file} was built for another CUDA: it needs {case.libraries}, but {case.torch} "
            f"is built for CUDA {cuda}"
        )
        return message, f"install a build of it for CUDA {cuda}, or {_REBUILD}"
    message = (
        f"{case.file} was probably built for another CUDA: its CUDA runtime has no {case.functions}"
    )
    return message, _REBUILD


def _library_missing(case: _Case) -> tuple[str, str]:
    lack, *more = case.about
    name, needer = lack.name, os.path.basename(lack.needed_by)
    via = f" (through {needer})" if needer != case.file else ""
    others = f", nor {_list([one.name for one in more])}" if more else ""
    message = f"{case.file} needs {name}{via}, which the loader does not find{others}"
    home = case.around.homes.get(name)
    if home:
        remedy = (
            f"load {home} first, by ctypes.CDLL or by the package that uses it, or start Python "
            f"with LD_LIBRARY_PATH={os.path.dirname(home)}"
        )
        return message, remedy
    toolkit = f"the CUDA toolkit {cuda_of(name)}"
    if cuda_of(name):
        wheel = requirement_of(name)
        if not wheel:
            return message, f"install {toolkit}, or a build for a newer CUDA"
        return message, f"install {wheel} with pip, or {toolkit}"
    general = (
        "install the package that contains it, or start Python with its folder in LD_LIBRARY_PATH"
    )
    return message, _PACKAGES.get(f"{name.partition('.so')[0]}.so", general)


def _symbol_version(case: _Case) -> tuple[str, str]:
    lack = case.about[0]
    is_certain = lack.name.startswith(("GLIBC", "CXXABI", "GCC_"))
    message = (
        f"{_needer(lack, case.found)} needs {lack.name}, which {lack.library} does not have: it is "
        f"{'' if is_certain else 'probably '}too old"
    )
    if "CXX" in lack.name:
        remedy = (
            "use a build for this system, or load a newer libstdc++.so.6 first (in conda: conda "
            "install -c conda-forge libstdcxx-ng)"
        )
        return message, remedy
    return message, "use a build for this system, or build it here"


def _python_abi(case: _Case) -> tuple[str, str]:
    lacks = f"it needs {case.functions if case.found.symbols else case.libraries}"
    message = (
        f"{case.file} was built for another Python than {case.around.python}: "
        f"{case.found.detail or lacks}"
    )
    return message, "install it for this Python, or build it again"


def _numpy_abi(case: _Case) -> tuple[str, str]:
    message = (
        f"{case.file} was built for NumPy 1, but {case.found.detail} is installed: its import "
        "fails with 'numpy.core.multiarray failed to import'"
    )
    return message, "update the package that contains it, or run: pip install 'numpy<2'"


def _older_library(case: _Case) -> tuple[str, str]:
    lack = case.about[0]
    name = os.path.basename(lack.library)
    which = lack.library if os.path.isabs(lack.library) else name
    message = (
        f"{_needer(lack, case.found)} needs {case.functions}, but gets an older {name} without it"
        f"{f': {which}' if which != name else ''}"
    )
    remedy = (
        "unset LD_LIBRARY_PATH if it leads to another CUDA; or import this package before the one "
        "with the older copy; or install both for one release"
    )
    return message, remedy


def _cuda_not_linked(case: _Case) -> tuple[str, str]:
    owners = {owner for lack in case.about for owner in [owner_of(lack.name)] if owner is not None}
    others = sorted(owner for owner in owners if owner.library != "libcudart")
    titles = " and ".join(owner.title for owner in others) or "the CUDA runtime"
    message = f"{case.file} was not linked with {titles}, whose {case.functions} it calls"
    if others:
        flags = " ".join(f"-l{owner.library[3:]}" for owner in others)
        return message, f"add {flags} to the libraries of the extension, and rebuild"
    remedy = (
        "build it with CUDAExtension (setup.py) or from CUDA sources (load), which link cudart, "
        "or add -lcudart"
    )
    return message, remedy


def _cxx11_abi(case: _Case) -> tuple[str, str]:
    this, other = (1, 0) if case.around.old_strings else (0, 1)
    message = (
        f"{case.file} was built with _GLIBCXX_USE_CXX11_ABI={this}, but {case.torch} with {other}: "
        f"it has no {case.functions}{_built_against(case)}"
    )
    return message, _REBUILD


def _other_torch(case: _Case) -> tuple[str, str]:
    if not case.around.torch:
        message = f"{case.file} was built for torch, which is not installed here: it needs "
        return f"{message}{case.functions}", "install the torch that the extension was built for"
    message = (
        f"{case.file} was built for another torch: {case.torch} has no {case.functions}"
        f"{_built_against(case)}"
    )
    return message, _REBUILD


def _built_against(case: _Case) -> str:
    folder = case.around.built_against
    if not folder:
        return ""
    isolated = "pip's isolated build environment, " if "pip-build-env" in folder else ""
    return f". It was built against {isolated}{folder}"


def _own_source_missing(case: _Case) -> tuple[str, str]:
    others = [name for name in case.found.needed if not name.startswith(_WELL_KNOWN)]
    is_cuda = "cuda" in case.functions.lower() and not others
    if is_cuda:
        message = (
            f"{case.file} was probably linked without its CUDA object file: no library of torch, "
            "CUDA or "
            f"Python defines {case.functions}"
        )
        remedy = (
            "rebuild it with nvcc on PATH, and check that the .cu file is compiled and linked: "
            "CUDA_HOME=/usr/local/cuda pip install --no-build-isolation --no-cache-dir -v ./SOURCE"
        )
        if case.around.torch.endswith("+cpu"):  # with which nothing finds CUDA_HOME
            remedy = f"{_TORCH_CUDA}: {case.torch} compiles no .cu file; then {remedy}"
        return message, remedy
    message = (
        f"{case.file} was probably linked without one of its sources or libraries: no library of "
        "torch, "
        f"CUDA or Python defines {case.functions}"
    )
    if others:
        message += f". It may come from another version of {_list(others)}"
    remedy = "add the missing source file or library to the extension, and rebuild"
    return message, remedy


def _unknown(case: _Case) -> tuple[str, str]:
    if case.functions:
        message = f"{case.file} needs {case.functions}, which no library defines"
        return message, "link it with the library that defines it, and rebuild"
    return f"cudaguard cannot check {case.file}: {case.found.detail}", ""


_WORDS: dict[str, Callable[[_Case], tuple[str, str]]] = {
    "truncated": _truncated,
    "not-elf": _not_elf,
    "wrong-machine": _wrong_machine,
    "torch-not-imported": _torch_not_imported,
    "torch-flavor": _torch_flavor,
    "cuda-major": _cuda_major,
    "library-missing": _library_missing,
    "symbol-version": _symbol_version,
    "python-abi": _python_abi,
    "numpy-abi": _numpy_abi,
    "older-library": _older_library,
    "cuda-not-linked": _cuda_not_linked,
    "cxx11-abi": _cxx11_abi,
    "other-torch": _other_torch,
    "own-source-missing": _own_source_missing,
    "unknown": _unknown,
}


def _needer(lack: Lack, found: Forecast) -> str:
    file = os.path.basename(found.path)
    needer = os.path.basename(lack.needed_by)
    return file if needer == file else f"{needer} (which {file} needs)"


def _list(names: list[str], form: str = "{}") -> str:
    shown = ", ".join(form.format(name) for name in names[:_SHOWN])
    left = len(names) - _SHOWN
    return f"{shown} and {left} more" if left > 0 else shown
