"""The torch of this environment and its build: read from its files, never by importing it."""

from __future__ import annotations

import re
import sys
from itertools import islice
from mmap import ACCESS_READ, mmap

from cudaguard.elf.forecast import Surroundings
from cudaguard.elf.reader import ElfFile
from cudaguard.elf.symbols import SharedObject, Wanted
from cudaguard.files import names_in, open_to_read, os, own_errors, program_errors, text_in
from cudaguard.model import TYPE_CHECKING
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
# What torch's ``__init__.py`` opens first: a folder of NVIDIA's wheels, and a library in it.
_OPENED_FIRST = re.compile(r'\("(\w+)", "(lib\w+\.so[^"]*)"')


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
    opens ``libtorch_global_deps.so`` and libraries of NVIDIA's wheels before.
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
    if not os.path.exists(first):
        return found
    asked = _OPENED_FIRST.findall(text_in(folder, "__init__.py"))
    parts = (below(os.path.join("nvidia", part, "lib", name)) for part, name in asked)
    return [first, *(file for files in parts for file in islice(files, 1)), *found]


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
    folders += (os.path.join(folder_of("torch"), "lib"), *below(CUDA_FOLDERS))
    return next(filter(os.path.exists, (os.path.join(folder, library) for folder in folders)), "")


def _old_strings(path: str) -> bool | None:
    try:
        with ElfFile(path) as file:
            symbols = SharedObject(file)
            has = [symbols.defines(Wanted(_ASSERT + end)) for end in (_OLD, _NEW)]
    except own_errors(OSError):
        return None
    return has[0] if has[0] != has[1] else None
