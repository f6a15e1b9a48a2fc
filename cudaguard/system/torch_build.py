"""The torch of this environment and its build: read from its files, never by importing it."""

from __future__ import annotations

import re
import sys
from glob import glob
from mmap import ACCESS_READ, mmap

from cudaguard.elf.forecast import Surroundings
from cudaguard.elf.process import mapped_libraries
from cudaguard.elf.reader import ElfFile, read_elf
from cudaguard.elf.search_path import SearchPath, fits, read_place
from cudaguard.elf.symbols import SharedObject, Wanted
from cudaguard.files import escape, names_in, open_to_read, os, own_errors, program_errors, text_in
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system import peek
from cudaguard.system.preload import CUDA_FOLDERS, below

if TYPE_CHECKING:
    from collections.abc import Iterable

PYTHON_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
# An assertion that every extension calls, with the string type of either ABI.
_ASSERT = b"_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RK"
_OLD, _NEW = b"Ss", b"NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_SAID = re.compile(
    r"^(__version__|cuda|hip|xpu|debug|git_version)\b[^=\n]*=\s*['\"]?([^'\"\n#]+)", re.MULTILINE
)
# As torch._C._cuda_getArchFlags() has it.
_ARCHITECTURES = re.compile(rb"(?:(?:sm|compute)_\d{2,3}[a-z]? ?)+")
_LONGEST_LIST = 1000


def folder_of(module: str) -> str:
    """Return the folder of an installed package, or the file of a module; empty if there is none.

    The module is not imported.
    """
    if module in sys.modules:
        here = sys.modules[module]
        paths = peek(here, "__path__")
        if isinstance(paths, list) and paths and isinstance(paths[0], str):
            return paths[0]
        file = peek(here, "__file__")
        return file if isinstance(file, str) else ""
    from importlib.machinery import PathFinder

    try:
        spec = PathFinder.find_spec(module)
    except program_errors(Exception):  # foreign code: the hooks of a path entry
        return ""
    if spec is None:
        return ""
    folders = spec.submodule_search_locations
    return next(iter(folders), "") if folders is not None else spec.origin or ""


def extensions_of(module: str) -> list[str]:
    """Return the files that are mapped once a module is imported, as far as files tell it.

    Those are its own extensions, in the top folder of a package, and what they need; torch
    also loads ``libtorch_global_deps.so``.
    """
    folder = folder_of(module)
    if not os.path.isdir(folder):
        return [folder] if folder.endswith(".so") else []
    from importlib.machinery import EXTENSION_SUFFIXES

    found = [
        os.path.join(folder, name)
        for name in sorted(os.listdir(folder))
        if any(name.endswith(suffix) and "." not in name[: -len(suffix)]
               for suffix in EXTENSION_SUFFIXES)
    ]  # fmt: skip
    first = os.path.join(folder, "lib", "libtorch_global_deps.so")
    return [first, *found] if os.path.exists(first) else found


def look_around(given: Iterable[str] = ()) -> Surroundings:
    """Return what extensions are built for here.

    `given`: modules that are to be taken for imported.
    """
    folder = folder_of("torch")
    if not os.path.isdir(folder):
        return Surroundings(PYTHON_VERSION)
    libraries = os.path.join(folder, "lib")
    build = build_of(folder)
    return Surroundings(
        PYTHON_VERSION,
        is_imported=sys.modules.get("torch") is not None or "torch" in given,
        torch=build.get("__version__", "unknown"),
        cuda=build.get("cuda", ""),
        old_strings=_old_strings(os.path.join(libraries, "libc10.so")),
        torch_libraries=frozenset(names_in(libraries)),
    )


def architectures(torch: str) -> tuple[str, ...]:
    """Return what a torch has code for, as in ``("sm_80", "sm_90")``; empty if it does not say."""
    try:
        file = open_to_read(os.path.join(torch, "lib", "libtorch_python.so"))
        try:
            with mmap(file, 0, access=ACCESS_READ) as data:
                return _listed(data)
        finally:
            os.close(file)
    except own_errors(OSError, ValueError):
        return ()


def _listed(data: mmap) -> tuple[str, ...]:
    place = data.find(b"sm_")
    while place >= 0:
        start = data.rfind(b"\0", max(0, place - _LONGEST_LIST), place) + 1
        text = data[start : data.find(b"\0", place, place + _LONGEST_LIST)]
        if _ARCHITECTURES.fullmatch(text):
            return tuple(text.decode().split())
        place = data.find(b"sm_", place + 1)
    return ()


def build_of(torch: str) -> dict[str, str]:
    """Return what a torch says of its build, by its folder: ``__version__``, ``cuda`` ..."""
    said = _SAID.findall(text_in(torch, "version.py"))
    return {name: value.strip() for name, value in said if value.strip() != "None"}


def home_of(library: str) -> str:
    """Return a file of a library, where the loader does not look but a user would; else empty.

    Those are the folders of NVIDIA's wheels, torch's own, and what ``LD_LIBRARY_PATH`` has become
    since the process was started.
    """
    folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    folders.append(os.path.join(folder_of("torch"), "lib"))
    for entry in sys.path:
        folders += sorted(glob(os.path.join(escape(entry), "nvidia", "*", "lib")))
    return next(filter(os.path.exists, (os.path.join(folder, library) for folder in folders)), "")


def _old_strings(path: str) -> bool | None:
    try:
        with ElfFile(path) as file:
            symbols = SharedObject(file)
            has = [symbols.defines(Wanted(_ASSERT + end)) for end in (_OLD, _NEW)]
    except own_errors(OSError):
        return None
    return has[0] if has[0] != has[1] else None


# --- Which copies of NVRTC there are, and which one serves torch: by files, nothing is loaded -----
# The release of a copy is in the name of the library that lies beside it, ``libnvrtc-
# builtins.so.12.8``: to load one for asking would have it serve the whole process.
#
# Source: NVRTC documentation, "Basic Usage"; how NVIDIA's and PyTorch's wheels are laid out.

_NVRTC = "libnvrtc"
# What of torch is linked against NVRTC, and opened together with it.
_TORCH_PART = "libcaffe2_nvrtc.so"
_BUILTINS = re.compile(r"libnvrtc-builtins(?:-[0-9a-f]+)?\.so\.(\d+)\.(\d+)(?:\.\d+)?")
_FILE = re.compile(r"libnvrtc\.so\.(\d+)\.(\d+)\.\d+")  # as toolkits name it
_HASH = re.compile(r"-[0-9a-f]{8}(?=\.so)")  # in older wheels of PyTorch
_TOOLKITS = ("/usr/local/cuda*",)


class Nvrtc(NamedTuple):
    """A copy of NVRTC."""

    path: str
    name: str  # what it is asked for by: ``libnvrtc.so.12``
    # The release of CUDA that it belongs to, as in (12, 8); None if not known
    release: tuple[int, int] | None

    def with_builtins(self) -> tuple[str, ...]:
        """Return its file, and the library beside it that it opens when it compiles.

        That of CUDA 13.0's wheel does not look there, and fails unless somebody has opened it.
        """
        major, minor = self.release or (0, 0)
        builtins = os.path.join(os.path.dirname(self.path), f"libnvrtc-builtins.so.{major}.{minor}")
        return tuple(filter(os.path.exists, (self.path, builtins)))


def mapped_copies() -> list[Nvrtc]:
    """Return the copies in this process; of one name the first serves all who ask for it."""
    try:
        files = [library.file for library in mapped_libraries()]
    except own_errors(OSError):
        return []
    return [
        _copy(file)
        for file in files
        if os.path.basename(file).startswith((f"{_NVRTC}.so", f"{_NVRTC}-"))
        and not _BUILTINS.match(os.path.basename(file))
    ]


def copy_for(torch: str) -> Nvrtc | None:
    """Return the copy that serves torch, or will once code is compiled at run time."""
    asking = os.path.join(torch, "lib", _TORCH_PART)
    name = next((n for n in read_elf(asking).needed if n.startswith(_NVRTC)), "")
    if not name:
        return None
    plain = _HASH.sub("", name)
    served = next((copy for copy in mapped_copies() if copy.name in (name, plain)), None)
    if served is not None:
        return served
    # torch asks for the plain name first.
    place, search = read_place(asking), SearchPath(())
    path = search.find(plain, place) or search.find(name, place)
    return _copy(path) if path else None


def installed_copies(soname: str) -> list[Nvrtc]:
    """Return the copies of a name that are installed: in NVIDIA's wheels, toolkits and conda's."""
    homes = [*map(os.environ.get, ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")), sys.prefix]
    files = [*below(os.path.join(CUDA_FOLDERS, soname))]
    for home in (*(escape(home) for home in homes if home), *_TOOLKITS):
        for part in ("lib64", "lib", "targets/*/lib"):
            files += sorted(glob(os.path.join(home, part, soname)))
    # A toolkit may have a folder for builds for another machine.
    copies = [_copy(path) for path in dict.fromkeys(map(os.path.realpath, files)) if fits(path)]
    return [copy for copy in copies if copy.name == soname]


def _copy(path: str) -> Nvrtc:
    path = os.path.realpath(path)
    return Nvrtc(path, read_elf(path).soname or os.path.basename(path), _release(path))


def _release(path: str) -> tuple[int, int] | None:
    match = _FILE.fullmatch(os.path.basename(path))
    if match is not None:
        return int(match[1]), int(match[2])
    found = map(_BUILTINS.fullmatch, names_in(os.path.dirname(path)))
    releases = {(int(match[1]), int(match[2])) for match in found if match is not None}
    return releases.pop() if len(releases) == 1 else None
