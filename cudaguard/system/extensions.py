"""Judges from files whether an extension would load; nothing is loaded or imported."""

from __future__ import annotations

import re

from cudaguard.elf.forecast import ExtensionCheck, forecast
from cudaguard.elf.library_facts import distributions_of, readable
from cudaguard.elf.process import serving_file
from cudaguard.elf.reader import ElfFile, read_elf
from cudaguard.elf.search_path import SearchPath, read_place
from cudaguard.files import os, own_errors, read_start
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system import name_owners
from cudaguard.system.facts import PAIRS, Facts, Packages, fitting_release, requires_of
from cudaguard.system.newer_copies import brings_newer
from cudaguard.system.preload import listed_as, soname_of
from cudaguard.system.runtimes import stem_of
from cudaguard.system.torch_build import PYTHON_VERSION, extensions_of, home_of, look_around

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cudaguard.elf.forecast import Forecast, Lack, Settled, Surroundings

# --- Why an extension would not load: from what is missing to one cause ---------------------------
# Source: the messages of glibc's loader and what makes them, the Itanium C++ ABI (mangled names),
# the names under which torch, CUDA and CPython keep their functions.

_TORCH_LIBRARIES = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so")
_ACCELERATED = frozenset((
    "libc10_cuda.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so", "libc10_hip.so",
    "libtorch_hip.so", "libc10_xpu.so", "libtorch_xpu.so",
))  # fmt: skip
OF_TORCH = _ACCELERATED.union(_TORCH_LIBRARIES)
_PYTHON_LIBRARY = re.compile(r"libpython(\d+\.\d+)[a-z]*\.so")
_TAG = re.compile(r"\.cpython-(\d)(\d+)[a-z]*-[\w-]*\.so$")
# What stands in a mangled name besides identifiers: substitutions, parameters, literals.
_NO_LENGTH = re.compile(r"S[0-9A-Z]{0,12}_|T[0-9]{0,12}_|L[a-z]n?[0-9]+E|(\d+)")
# Runtimes that no library of wheels defines.
_SANITIZERS = ("__asan", "__tsan", "__ubsan", "__msan")
_WELL_KNOWN = (name_owners.RUNTIME, name_owners.OTHER)


def cause_of(found: Forecast, around: Surroundings) -> tuple[str, tuple[Lack, ...]]:
    """Return the cause for which an extension that is not fine would not load, and what about."""
    if found.problem:
        return found.problem, ()
    if found.libraries:  # a missing library has missing symbols follow
        return _of_libraries(found, around)
    return ("symbol-version", found.versions) if found.versions else _of_symbols(found, around)


def built_for_python(path: str) -> str:
    """Return the version of Python that is part of a file name, as in ``3.10``; often empty."""
    tag = _TAG.search(path)
    return f"{tag[1]}.{tag[2]}" if tag else ""


def library_of(symbol: str) -> str:
    """Return which of NVIDIA's libraries has a function, without ``.so``; often empty."""
    owner = name_owners.owner_of(symbol)
    # The runtime and the driver are linked in many ways: an older one is seldom what is wrong.
    is_linked = owner.library in ("libcudart", "libcuda")
    return owner.library if owner.kind == name_owners.NVIDIA and not is_linked else ""


def _of_libraries(found: Forecast, around: Surroundings) -> tuple[str, tuple[Lack, ...]]:
    other_build = _named(found.libraries, lambda n: n in _ACCELERATED - around.torch_libraries)
    torchs = _named(found.libraries, OF_TORCH.__contains__)
    for_cuda = _named(found.libraries, lambda n: bool(name_owners.cuda_of(n)))
    if around.torch and other_build:
        return "torch-flavor", other_build
    if torchs and not around.is_imported:
        return "torch-not-imported", torchs
    if for_cuda and around.torch and not around.cuda and not OF_TORCH.isdisjoint(found.needed):
        return "torch-flavor", for_cuda
    other_major = _named(for_cuda, lambda n: name_owners.cuda_of(n) != around.cuda.split(".")[0])
    if other_major and around.cuda:
        return "cuda-major", other_major
    parts = _named(found.libraries, lambda n: n.startswith(("libtorch_", "libc10_")))
    if around.torch and {*parts} - {*torchs} and not OF_TORCH.isdisjoint(found.needed):
        return "other-torch", parts  # a release with other parts, such as libtorch_cuda_cu.so
    own = {around.python}
    pythons = _named(found.libraries, lambda n: not own.issuperset(_PYTHON_LIBRARY.findall(n)))
    return ("python-abi", pythons) if pythons else ("library-missing", found.libraries)


def _of_symbols(found: Forecast, around: Surroundings) -> tuple[str, tuple[Lack, ...]]:
    lacks = found.symbols
    if pythons := _named(lacks, lambda n: n.startswith(("Py", "_Py")) and n[:7] != "PyInit_"):
        return "python-abi", pythons
    if older := tuple(lack for lack in lacks if lack.library):
        return "older-library", older
    if cuda := _named(lacks, lambda n: name_owners.owner_of(n).kind == name_owners.NVIDIA):
        # A function of another library is not missing for the runtime's age.
        others = _named(cuda, lambda n: name_owners.owner_of(n).library != "libcudart")
        has_runtime = any(name.startswith("libcudart.so") for name in found.needed)
        if has_runtime and not others:
            return "cuda-major", cuda
        return "cuda-not-linked", (others if has_runtime else cuda)
    if torchs := _named(lacks, lambda n: name_owners.owner_of(n).kind == name_owners.TORCH):
        old = around.old_strings
        strings = _named(torchs, lambda n: old is not None and has_old_strings(n) is (not old))
        return ("cxx11-abi", strings) if strings else ("other-torch", torchs)
    own = _named(
        lacks,
        lambda n: not (n.startswith(_SANITIZERS) or name_owners.owner_of(n).kind in _WELL_KNOWN),
    )
    return ("own-source-missing", own) if own else ("unknown", lacks)


def _named(lacks: Iterable[Lack], wanted: Callable[[str], bool]) -> tuple[Lack, ...]:
    return tuple(lack for lack in lacks if wanted(lack.name))


def has_old_strings(symbol: str) -> bool | None:
    """Return True if a name has ``std::string`` of the old C++ ABI; None without a string."""
    if "__cxx11" in symbol:
        return False
    place = 0
    while place < len(symbol):
        match = _NO_LENGTH.search(symbol, place)
        end = match.start() if match is not None else len(symbol)
        if "Ss" in symbol[place:end]:
            return True
        place = match.end() if match is not None else end
        if match is not None and match[1] and len(match[1]) < 6:
            place += int(match[1])  # an identifier
    return None


# --- What is said of an extension that would not load: the cause, and what to do ------------------

_SHOWN = 3  # names in a sentence
# What the guard itself has looked through: whatever else an extension names may have a function.
_LOOKED_THROUGH = (
    "ld-linux", "libc.so", "libdl.so", "libgcc_s.so", "libm.so", "libpthread.so", "librt.so",
    "libstdc++.so", "libgomp.so", "libpython", "libc10", "libtorch", "libcuda", "libcudart",
    "libcublas", "libcudnn", "libnv",
)  # fmt: skip
_OF_DRIVER = ("libcuda.so", "libnvidia-ml.so")
# What else than CUDA a torch may be built for, by one of its libraries.
_ACCELERATORS = {"libc10_hip.so": "ROCm", "libc10_xpu.so": "XPU"}
_TORCH_CUDA = "install a CUDA build of torch (https://pytorch.org/get-started/locally)"
_ITS_NAME = "PACKAGE (for a JIT build: delete its build folder)"
_REBUILD = (
    "rebuild it in this environment: pip install --no-build-isolation --no-cache-dir "
    f"--force-reinstall --no-deps --no-binary :all: {_ITS_NAME}"
)


class _Case(NamedTuple):
    """The values that messages and remedies name."""

    file: str
    torch: str
    libraries: str
    functions: str
    about: tuple[Lack, ...]
    found: Forecast
    around: Surroundings

    @property
    def needer(self) -> str:
        """The file that needs the first of what is missing, and how the extension comes by it."""
        needer = os.path.basename(self.about[0].needed_by)
        return self.file if needer == self.file else f"{needer} (which {self.file} needs)"


def words_for(
    cause: str,
    about: tuple[Lack, ...],
    found: Forecast,
    around: Surroundings,
    readable: Mapping[str, str],
) -> tuple[str, str]:
    """Return the message and the remedy for one of `CAUSES`; `readable`: symbols as in a source."""
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
    words = CAUSES[cause]
    if not isinstance(words, tuple):
        return words(case)
    message, remedy = words
    return message.format(**case._asdict()), remedy


def _torch_not_imported(case: _Case) -> tuple[str, str]:
    if not case.around.torch:
        return f"{case.file} needs {case.libraries}, but torch is not installed", "install torch"
    message = f"{case.file} needs {case.libraries}, which is found only after `import torch`"
    return message, "import torch before it"


def _torch_flavor(case: _Case) -> tuple[str, str]:
    cuda, libraries = case.around.cuda, case.around.torch_libraries
    others = (f"a build for {name}" for file, name in _ACCELERATORS.items() if file in libraries)
    built = f"a build for CUDA {cuda}" if cuda else next(others, "CPU-only")
    message = f"{case.file} needs {case.libraries}, but {case.torch} is {built}"
    if cuda:
        return message, f"install the torch that it was built for, or {_REBUILD}"
    return message, f"{_TORCH_CUDA}, or build the extension without CUDA"


def _cuda_major(case: _Case) -> tuple[str, str]:
    if not case.found.libraries:
        lacks = f"its CUDA runtime has no {case.functions}"
        return f"{case.file} was probably built for another CUDA: {lacks}", _REBUILD
    cuda = case.around.cuda
    message = (
        f"{case.file} was built for another CUDA: it needs {case.libraries}, but {case.torch} is "
        f"built for CUDA {cuda}"
    )
    wheels = dict.fromkeys(name_owners.requirement_of(lack.name) for lack in case.about)
    wheels.pop("", None)
    is_own = wheels and OF_TORCH.isdisjoint(case.found.needed)  # as cupy has its own CUDA
    other = f"that CUDA beside torch's: pip install {' '.join(wheels)}" if is_own else _REBUILD
    return message, f"install a build of it for CUDA {cuda}, or {other}"


def _library_missing(case: _Case) -> tuple[str, str]:
    lack, *more = case.about
    name, needer = lack.name, os.path.basename(lack.needed_by)
    via = f" (through {needer})" if needer != case.file else ""
    others = f", nor {_list([other.name for other in more])}" if more else ""
    message = f"{case.file} needs {name}{via}, which the loader does not find{others}"
    home, cuda = home_of(name), name_owners.cuda_of(name)
    package = name_owners.debian_package_of(name)
    is_known = home or cuda or package or name.startswith(_OF_DRIVER)
    other = "" if is_known else next(listed_as(f"{name.partition('.so.')[0]}.so."), "")
    home = other if os.path.basename(other) == name else home
    if home:
        remedy = (
            f"load {home} first, by ctypes.CDLL or by the package that uses it, or start Python "
            f"with LD_LIBRARY_PATH={os.path.dirname(home)}"
        )
    elif cuda:
        wheel, toolkit = name_owners.requirement_of(name), f"the CUDA toolkit {cuda}"
        remedy = f"install {wheel} with pip, or {toolkit}"
        if not wheel:
            remedy = f"install {toolkit}, or a build for a newer CUDA"
    elif other:
        owner = "".join(distributions_of([other]).get(other, [])[:1]) or Packages().of(other)
        message += f"; {owner} has {os.path.basename(other)}"
        built = Packages().of(lack.needed_by) or "it"
        remedy = f"install the {owner.partition(' ')[0]} that {built} was built with"
    else:
        remedy = (
            "install the package that contains it, or start Python with its folder in "
            "LD_LIBRARY_PATH"
        )
        if name.startswith(_OF_DRIVER):
            remedy = "install the NVIDIA driver, or start a container with --gpus all"
        elif package:
            what = f"FFmpeg with {name}" if package == name_owners.FFMPEG else "it"
            remedy = f"install {what}: apt-get install {package}"
    return message, remedy


def _symbol_version(case: _Case) -> tuple[str, str]:
    lack = case.about[0]
    is_certain = lack.name.startswith(("GLIBC", "CXXABI", "GCC_"))
    name, soname = os.path.basename(lack.library), soname_of(lack.library)
    message = f"{case.needer} needs {lack.name}, which {lack.library} does not have: it is "
    if not name.startswith(soname):
        remedy = f"replace {os.path.normpath(lack.library)} with a real {name}, or remove it"
        return f"{message}{soname} under another name", remedy
    message += f"{'' if is_certain else 'probably '}too old"
    if brings_newer(lack, case.found.path):
        package = Packages().of(lack.needed_by) or "this package"
        return message, f"import {package}, which gets a newer one, before packages that load it"
    if "CXX" not in lack.name:
        return message, "use a build for this system, or build it here"
    return message, "use a build for this system; in conda: conda install -c conda-forge libstdcxx"


def _python_abi(case: _Case) -> tuple[str, str]:
    lacks = f"it needs {case.functions if case.found.symbols else case.libraries}"
    message = (
        f"{case.file} was built for another Python than {case.around.python}: "
        f"{case.found.detail or lacks}"
    )
    return message, "install it for this Python, or build it again"


def _older_library(case: _Case) -> tuple[str, str]:
    library, packages = os.path.normpath(case.about[0].library), Packages()
    name, package = os.path.basename(library), packages.of(library)
    is_named = package not in ("", "nvidia")
    # NVIDIA's libraries keep old functions. Of two Qt, the newer may lack one.
    which = f"{package}'s" if is_named and not stem_of(name) else "an older"
    lacks = ("them" if case.about[1:] else "it") + f": {library}" * os.path.isabs(library)
    message = f"{case.needer} needs {case.functions}, but gets {which} {name} without {lacks}"
    folder = os.path.dirname(library)
    if folder and folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        return message, f"remove {folder} from LD_LIBRARY_PATH"
    own = packages.of(case.about[0].needed_by) or "this package"
    if is_named:
        one = f"install both for one {name}"
        if brings_newer(case.about[0], case.found.path):
            return message, f"import {own} before {package}; or {one}"
        return message, f"{one}, or use each in its own process"  # no order helps
    wheels = distributions_of([library]).get(library, [])
    if wheels[1:]:
        message += f", which {' and '.join(wheels)} both contain: the one installed last counts"
    pinned = _pinned_by(own, *(wheel.partition(" ")[0] for wheel in wheels))
    which = f"the one that {own} requires" if pinned else "the newer one again"
    pinned = pinned or "".join(wheels[1:][-1:]).replace(" ", "==")  # in the order of their names
    if pinned and [pinned.replace("==", " ")] != wheels:
        return message, f"install {which}: pip install --force-reinstall --no-deps {pinned}"
    return message, "import it before the package with the older copy, or install both for one CUDA"


def _pinned_by(package: str, *dists: str) -> str:
    """Return which version of one of these a package requires, as ``torch==2.5.1``; or ""."""
    asked = (text.partition(";")[0].strip() for text in requires_of(package))
    return next((text for text in asked if text.partition("==")[0] in dists and "==" in text), "")


def _cuda_not_linked(case: _Case) -> tuple[str, str]:
    owners = {name_owners.owner_of(lack.name) for lack in case.about}
    others = sorted(owner for owner in owners if owner.library != "libcudart")
    if any(lack.name.startswith("__cudaRegisterLinkedBinary_") for lack in case.about):
        message = f"{case.file} was compiled with -rdc=true, and its device code was not linked"
        return message, "build it without -rdc=true, or with dlink=True (nvcc -dlink)"
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
    if not case.around.cuda and "cuda" in case.functions.lower():
        message = f"{case.file} needs {case.functions} of a torch with CUDA; {case.torch} has none"
        return message, f"{_TORCH_CUDA}, or build the extension without CUDA"
    message = f"{case.file} was built for another torch: {case.torch} has no {case.functions}"
    package = Packages().of(case.found.path)
    if pinned := _pinned_by(package, "torch"):
        return message, f"install {pinned}, which it requires, or the {package} for this torch"
    return (
        f"{message}{_built_against(case)}",
        f"install a build of it for this torch, or {_REBUILD}",
    )


def _built_against(case: _Case) -> str:
    folder = torch_folder(case.found.path)
    isolated = "pip's isolated build environment, " if "pip-build-env" in folder else ""
    return f". It was built against {isolated}{folder}" if folder else ""


def _own_source_missing(case: _Case) -> tuple[str, str]:
    others = [name for name in case.found.needed if not name.startswith(_LOOKED_THROUGH)]
    is_cuda = "cuda" in case.functions.lower() and not others
    part = "its CUDA object file" if is_cuda else "one of its sources or libraries"
    message = (
        f"{case.file} was probably linked without {part}: no library of torch, CUDA or Python "
        f"defines {case.functions}"
    )
    if not is_cuda:
        remedy = "add the missing source file or library to the extension, and rebuild"
        if others:
            message += f". It may come from another version of {_list(others)}"
            remedy = f"install the {_list(others)} that it was built with; or {remedy}"
        return message, remedy
    remedy = (
        "rebuild it with nvcc on PATH, and check that the .cu file is compiled and linked: "
        "CUDA_HOME=/usr/local/cuda pip install --no-build-isolation --no-cache-dir -v ./SOURCE"
    )
    if case.around.torch.endswith("+cpu"):  # with which nothing finds CUDA_HOME
        remedy = f"{_TORCH_CUDA}: {case.torch} compiles no .cu file; then {remedy}"
    return message, remedy


def _unknown(case: _Case) -> tuple[str, str]:
    if case.functions:
        message = f"{case.file} needs {case.functions}, which no library defines"
        return message, "link it with the library that defines it, and rebuild"
    return f"cudaguard cannot check {case.file}: {case.found.detail}", ""


# Cause -> its message and remedy: texts with fields of `_Case`, or what makes them.
CAUSES: dict[str, tuple[str, str] | Callable[[_Case], tuple[str, str]]] = {
    "truncated": (
        "{file} is truncated, probably by an interrupted build or copy: {found.detail}",
        "delete the file, and build or install it again",
    ),
    "not-elf": (
        "{file} is not a loadable library: {found.detail}",
        "name a library (.so); if it should be one, build or install it again",
    ),
    "wrong-machine": (
        "{file} was built for another machine: {found.detail}",
        "install the package for this machine, or build it here",
    ),
    "executable-stack": (
        "{file} would be refused by this glibc (2.41 or newer): {found.detail}",
        "update the package, or set GLIBC_TUNABLES=glibc.rtld.execstack=2 before Python starts",
    ),
    "numpy-abi": (
        (
            "{file} was built for NumPy 1, but {found.detail} is installed: its import fails with "
            "'numpy.core.multiarray failed to import'"
        ),
        "update the package that contains it, or run: pip install 'numpy<2'",
    ),
    "torch-not-imported": _torch_not_imported,
    "torch-flavor": _torch_flavor,
    "cuda-major": _cuda_major,
    "library-missing": _library_missing,
    "symbol-version": _symbol_version,
    "python-abi": _python_abi,
    "older-library": _older_library,
    "cuda-not-linked": _cuda_not_linked,
    "cxx11-abi": _cxx11_abi,
    "other-torch": _other_torch,
    "own-source-missing": _own_source_missing,
    "unknown": _unknown,
}


def _list(names: list[str], form: str = "{}") -> str:
    shown = ", ".join(form.format(name) for name in names[:_SHOWN])
    left = len(names) - _SHOWN
    return f"{shown} and {left} more" if left > 0 else shown


# --- The check ------------------------------------------------------------------------------------

_HEADER = re.compile(rb'[\0"](/[!-~]{1,400}?)/torch/include/')
_IMPORT_ARRAY = b"module compiled against ABI version 0x%"
_MOST = 1 << 25  # the code of a large extension comes after its constants at times


def check_extension(
    path: str | os.PathLike[str], *, assume_imported: Iterable[str] | None = None
) -> ExtensionCheck:
    """Tell whether an extension would load, without loading it or importing anything.

    Args:
        path: The extension, or any shared library.
        assume_imported: None for this process as it is. Names of modules such as ``("torch",)``:
            as if these were imported as well; their files are read, and nothing is imported.

    Returns:
        Whether it would load; if not, the cause, in words, and what to do. `ok` is None where
        that cannot be said: no glibc, a file that cannot be read, tables that make no sense.

    Raises:
        TypeError: `path` is no path, or `assume_imported` is a single text or has what is no name.
    """
    if isinstance(assume_imported, str):
        expected = f"a tuple of module names such as ({assume_imported!r},)"
        raise TypeError(f"assume_imported must be {expected}, not a text")
    modules = tuple(assume_imported or ())
    for module in modules:
        if not isinstance(module, str):
            expected = "names of modules such as 'torch'"
            raise TypeError(f"assume_imported must have {expected}, not {module!r}")
    return check_one_of_many(os.fsdecode(path), modules, None)


def check_one_of_many(
    path: str,
    modules: tuple[str, ...],
    settled: dict[object, Settled] | None,
    opened: tuple[str, ...] = (),
) -> ExtensionCheck:
    """Check as `check_extension` does, with what `forecast` has `settled` for others as well.

    Libraries that were `opened` are there, once the modules are imported.
    """
    if os.path.basename(os.path.dirname(path)) == "torch":  # torch opens what its own need first
        opened = (*(file for file in extensions_of("torch") if file != path), *opened)
    files = [file for module in modules for file in extensions_of(module)] + [*opened]
    found = forecast(path, files, settled)
    other = built_for_python(found.path)
    if other and other != PYTHON_VERSION:
        detail = f"its name says {other}, and an import does not even look at it"
        return check_of_forecast(found._replace(problem="python-abi", detail=detail), modules)
    numpy = numpy_2() if found.is_fine and is_for_numpy_1(found.path) else ""
    if numpy:
        found = found._replace(problem="numpy-abi", detail=f"NumPy {numpy}")
    return check_of_forecast(found, modules)


def check_of_forecast(found: Forecast, given: tuple[str, ...] = ()) -> ExtensionCheck:
    """Return the check that follows from a forecast; `given`: modules taken for imported."""
    if found.is_fine:
        return ExtensionCheck(True, found.path)
    if found.problem == "not-elf":
        from cudaguard.system.pe import check_pe

        if (of_windows := check_pe(found.path)) is not None:
            return of_windows
    around = look_around(given)
    if not found.libraries and not found.versions:  # else these are the cause
        lacks = tuple(_with_library(lack, is_later=bool(given)) for lack in found.symbols)
        found = found._replace(symbols=lacks)
    cause, about = cause_of(found, around)
    symbols = readable(dict.fromkeys(lack.name for lack in found.symbols))
    message, remedy = words_for(cause, about, found, around, dict(symbols))
    for owner in distributions_of([found.path]).get(found.path, ())[:1]:
        name = owner.partition(" ")[0]
        fix = fitting_release(PAIRS, name, Facts().version) if _ITS_NAME in remedy else ""
        remedy = f"install the version that fits: {fix}" if fix else remedy.replace(_ITS_NAME, name)
    return ExtensionCheck(
        None if found.problem == "unknown" else False,
        found.path,
        cause,
        message,
        missing_symbols=tuple(symbols),
        missing_libraries=tuple(dict.fromkeys(lack.name for lack in found.libraries)),
        remedy=remedy,
    )


def _with_library(lack: Lack, *, is_later: bool) -> Lack:
    """Return a symbol with the library that should have it; later, modules may bring another."""
    stem = library_of(lack.name)
    if lack.library or not stem:
        return lack
    needed = read_elf(lack.needed_by).needed
    name = next((name for name in needed if name.startswith(f"{stem}.so")), "")
    place = None if is_later or not name else read_place(lack.needed_by)
    file = name and (serving_file(name) or (SearchPath().find(name, place) if place else ""))
    return lack._replace(library=file or name)


def torch_folder(path: str) -> str:
    """Return the folder of the torch that an extension was built against, empty if unknown.

    Assertions in torch's headers leave the path of the header.
    """
    match = _HEADER.search(_constants(path))
    return f"{match[1].decode('ascii')}/torch" if match else ""


def numpy_2() -> str:
    """Return the version of NumPy if it is 2 or newer, else nothing."""
    version = Facts().version("numpy") or ""
    major = version.partition(".")[0]
    return version if major.isdecimal() and int(major) > 1 else ""


def is_for_numpy_1(path: str) -> bool:
    """Return True for an extension module that was compiled with the headers of NumPy 1.

    The name of what ``import_array()`` imports is compiled in. That of NumPy 2 names both.
    """
    if os.path.basename(path).startswith("lib"):  # libtorch_python goes on without NumPy
        return False
    data = _constants(path)
    return _IMPORT_ARRAY in data and b"numpy.core" in data and b"numpy._core" not in data


def _constants(path: str) -> bytes:
    """Return the part of a file that has its constants; empty if it cannot be read."""
    try:
        with ElfFile(path) as file:
            place, size = file.sections(b".rodata").get(b".rodata", (0, 0))
            return file.at(place, min(size, _MOST)) or read_start(path, _MOST)
    except own_errors(OSError, ValueError):
        return b""
