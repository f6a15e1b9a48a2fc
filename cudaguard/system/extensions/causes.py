"""Why an extension would not load: from what is missing to one cause.

Source: the messages of glibc's loader and what makes them, the Itanium C++ ABI (mangled names),
the names under which torch, CUDA and CPython keep their functions.
"""

from __future__ import annotations

import re

from cudaguard.system.name_owners import NVIDIA, OTHER, RUNTIME, TORCH, owner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudaguard.elf.extension_check import Forecast, Lack, Surroundings

TORCH_LIBRARIES = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so")
ACCELERATED = ("libc10_cuda.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so", "libc10_hip.so",
               "libtorch_hip.so", "libc10_xpu.so", "libtorch_xpu.so")  # fmt: skip
# The number in the soname is CUDA's major version. (It is not for cuFFT, cuRAND, cuSOLVER, cuDNN.)
_CUDA_LIBRARY = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|cupti)\.so\.(\d+)")
_PYTHON_LIBRARY = re.compile(r"libpython(\d+\.\d+)[a-z]*\.so")
_TAG = re.compile(r"\.cpython-(\d)(\d+)[a-z]*-[\w-]*\.so$")
# What stands in a mangled name besides identifiers: substitutions, parameters, literals.
_NO_LENGTH = re.compile(r"S[0-9A-Z]{0,12}_|T[0-9]{0,12}_|L[a-z]n?[0-9]+E|(\d+)")
# Runtimes that no library of wheels defines.
_SANITIZERS = ("__asan", "__tsan", "__ubsan", "__msan")


def cause_of(found: Forecast, around: Surroundings) -> tuple[str, tuple[Lack, ...]]:
    """Return the cause for which an extension would not load, and what it is about.

    Args:
        found: What the loader would meet. Not fine, or there is no cause.
        around: What extensions are built for here.
    """
    if found.problem:
        return found.problem, ()
    if found.libraries:  # a missing library has missing symbols follow
        return _of_libraries(found, around)
    if found.versions:
        return "symbol-version", found.versions
    return _of_symbols(found, around)


def built_for_python(path: str) -> str:
    """Return the version of Python that is part of a file name, as in ``3.10``; often empty."""
    tag = _TAG.search(path)
    return f"{tag[1]}.{tag[2]}" if tag else ""


def cuda_major(library: str) -> str:
    """Return CUDA's major version if the library's name has it, otherwise an empty string."""
    match = _CUDA_LIBRARY.match(library)
    return match[1] if match else ""


def library_of(symbol: str) -> str:
    """Return which of NVIDIA's libraries has a function, without ``.so``; often empty."""
    owner = owner_of(symbol)
    # The runtime and the driver are linked in many ways: an older one is seldom what is wrong.
    is_of_library = owner is not None and owner.library not in ("libcudart", "libcuda")
    return owner.library if owner is not None and owner.kind == NVIDIA and is_of_library else ""


def belongs_to_others(symbol: str) -> str:
    """Return whose function that is, if it is well known and not torch's, CUDA's or Python's."""
    if symbol.startswith(_SANITIZERS):
        return "a sanitizer's runtime"
    owner = owner_of(symbol)
    return owner.title if owner is not None and owner.kind in (RUNTIME, OTHER) else ""


def _of_libraries(found: Forecast, around: Surroundings) -> tuple[str, tuple[Lack, ...]]:
    names = {lack.name: lack for lack in found.libraries}
    foreign = _only(names, lambda n: n in ACCELERATED and n not in around.torch_libraries)
    torchs = _only(names, lambda n: n in (*TORCH_LIBRARIES, *ACCELERATED))
    for_cuda = _only(names, lambda n: bool(cuda_major(n)))
    for_torch = any(name in (*TORCH_LIBRARIES, *ACCELERATED) for name in found.needed)
    pythons = _only(names, lambda n: _other_python(n, around.python))
    if around.torch and foreign:
        return "torch-flavor", foreign
    if torchs and not around.is_imported:
        return "torch-not-imported", torchs
    if for_cuda and for_torch and around.torch and not around.cuda:
        return "torch-flavor", for_cuda
    other_major = tuple(
        lack for lack in for_cuda if cuda_major(lack.name) != around.cuda.partition(".")[0]
    )
    if other_major and around.cuda:
        return "cuda-major", other_major
    if pythons:
        return "python-abi", pythons
    return "library-missing", found.libraries


def _only(names: dict[str, Lack], wanted: Callable[[str], bool]) -> tuple[Lack, ...]:
    return tuple(lack for name, lack in names.items() if wanted(name))


def _other_python(library: str, python: str) -> bool:
    match = _PYTHON_LIBRARY.match(library)
    return match is not None and match[1] != python


def _of_symbols(found: Forecast, around: Surroundings) -> tuple[str, tuple[Lack, ...]]:
    lacks = found.symbols
    pythons = _named(lacks, lambda n: n.startswith(("Py", "_Py")) and n[:7] != "PyInit_")
    if pythons:
        return "python-abi", pythons
    older = tuple(lack for lack in lacks if lack.library)
    if older:
        return "older-library", older
    cuda = _named(lacks, lambda n: _kind_of(n) == NVIDIA)
    if cuda:
        # A function of another library is not missing for the runtime's age.
        others = _named(cuda, lambda n: _library_of(n) != "libcudart")
        has_runtime = any(name.startswith("libcudart.so") for name in found.needed)
        if has_runtime and not others:
            return "cuda-major", cuda
        return "cuda-not-linked", (others if has_runtime else cuda)
    torchs = _named(lacks, lambda n: _kind_of(n) == TORCH)
    if torchs:
        if around.old_strings is not None:
            strings = _named(torchs, lambda n: has_old_strings(n) is (not around.old_strings))
            if strings:
                return "cxx11-abi", strings
        return "other-torch", torchs
    own = _named(lacks, lambda n: not belongs_to_others(n))
    return ("own-source-missing", own) if own else ("unknown", lacks)


def _kind_of(symbol: str) -> str:
    owner = owner_of(symbol)
    return "" if owner is None else owner.kind


def _library_of(symbol: str) -> str:
    owner = owner_of(symbol)
    return "" if owner is None else owner.library


def _named(lacks: Iterable[Lack], wanted: Callable[[str], bool]) -> tuple[Lack, ...]:
    return tuple(lack for lack in lacks if wanted(lack.name))


def has_old_strings(symbol: str) -> bool | None:
    """Return True if a name has ``std::string`` of the old C++ ABI; None without a string."""
    rest, identifiers = taken_apart(symbol)
    if "__cxx11" in identifiers:
        return False
    return True if "Ss" in rest else None


def taken_apart(symbol: str) -> tuple[str, list[str]]:
    """Return a mangled name without its identifiers, and the identifiers."""
    rest, place = "", 0
    identifiers: list[str] = []
    while place < len(symbol):
        match = _NO_LENGTH.search(symbol, place)
        if match is None:
            return rest + symbol[place:], identifiers
        rest += symbol[place : match.start()]
        place = match.end()
        if match[1] and len(match[1]) < 6:
            identifiers.append(symbol[place : place + int(match[1])])
            place += int(match[1])
    return rest, identifiers
