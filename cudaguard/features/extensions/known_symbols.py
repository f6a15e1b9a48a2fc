"""``undefined symbol``: who should define the name, and why nobody does.

Source: glibc, ``elf/dl-lookup.c``; the reports linked.
"""

from __future__ import annotations

import os
import re
import shlex
from functools import partial

from cudaguard.core.known_errors import LIKELY, KnownError
from cudaguard.elf.library_facts import in_short
from cudaguard.system.name_owners import NOBODY, NVIDIA, PYTHON, TORCH, NameOwner, owner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

_HINTS = ("undefined symbol: ",)
_PATTERN = (
    r"(?:(?<![^\s'\"])([/A-Za-z_.][^\s:'\"]{0,400}): )?undefined symbol: (\w+)"
    r"(?:, version (lib[\w.+-]{1,60}))?"
)
_EXTENSION = re.compile(r"\.cpython-|\.abi3\.so$|\.pypy|(?:^|/)_[A-Za-z]\w*\.so$")
_INTERFACE = re.compile(r"(?:aoti_)?torch_")
_TYPES = re.compile(r"_ZT[VISC]")
_REBUILD = (
    "rebuild it against the installed torch (pip install --no-build-isolation --no-cache-dir "
    "--force-reinstall --no-deps PACKAGE), or install the pair of releases that its project names"
)


def _of_symbol(id: str, match: re.Match[str]) -> Finding | None:
    """Return what a message means, None if another id is for it."""
    if match.string.endswith("AttributeError: ", 0, match.start()):  # asked for by way of ctypes
        return None
    if match.lastindex is not None and match.lastindex > 3:
        return OTHER_PYTHON.with_words(
            "The extension", f"was compiled for Python {match[4]}, and this is Python {match[5]}"
        )
    needer, name, version = match[1] or "", match[2], match[3] or ""
    needer = needer if "." in needer or "/" in needer else ""
    owner = owner_of(name)
    if owner.library == "libittnotify":
        return None  # see NEW_MKL
    if owner.kind == PYTHON:
        found = OTHER_PYTHON.with_words(
            _named(needer), f"calls {name}, which this Python does not have"
        )
    elif owner.kind == TORCH:
        found = OTHER_TORCH.with_words(_named(needer), _short(name), _why_other_torch(name))
    elif version or (owner != NOBODY and not _is_extension(needer)):
        # An extension may not be linked to that library at all, unless it names the version.
        found = _of_older_copy(needer, name, version, owner)
    elif owner.kind == NVIDIA:
        why = f"the extension was built for another CUDA, or without linking {owner.library}"
        found = OTHER_CUDA.with_words(_named(needer), name, owner.title, why)
    else:
        found = _of_nobody(needer, name, owner)
    if found.id != id:
        return None
    file = shlex.quote(needer) if needer else "FILE"
    return found.replace(command=found.command.replace("FILE", file))


def _is_extension(path: str) -> bool:
    """Return True for an extension module: a library has a name that begins with ``lib``."""
    return bool(_EXTENSION.search(path)) or not os.path.basename(path).startswith("lib")


def _named(path: str) -> str:
    return os.path.basename(path) or "A library"


def _short(name: str) -> str:
    """Return a name as in the source, without its arguments."""
    if _TYPES.match(name):
        return f"the type {in_short(f'_Z{name[4:]}').partition('(')[0]}"
    return in_short(name)


def _why_other_torch(name: str) -> str:
    if _INTERFACE.match(name):
        return "it is part of torch's stable interface, and probably newer than the installed torch"
    if _TYPES.match(name):
        return "it was built for another torch, or without linking torch's libraries"
    if name.startswith("_ZN3c104cuda") or "cuda" in name.lower():
        return "it was built for another torch, or for one with CUDA where this is a build for CPUs"
    return "it was built for another torch, or with the other C++ ABI"


def _of_older_copy(needer: str, name: str, version: str, owner: NameOwner) -> Finding:
    """Return what is said of a library whose other copy came first."""
    title, is_of_nvidia = owner.title or version, owner.kind == NVIDIA
    file = version or (f"{owner.library}.so" if is_of_nvidia else f"copy of {title}")
    gets = "gets" if version else "probably gets"  # with a version the loader asked for that file
    found = OLDER_COPY.with_words(_named(needer), _short(name), title, file, gets)
    if is_of_nvidia:
        return found
    return found.replace(
        remedy=f"import the package with the newer {title} first (cudaguard bisect finds the "
        "order that works), or take both packages from one source: all from conda, or all from pip",
        command="cudaguard doctor --only CG903",
    )


def _of_nobody(needer: str, name: str, owner: NameOwner) -> Finding:
    """Return what is said of a name that no library defines that is known for it."""
    words = partial(NO_OWNER.with_words, _named(needer), _short(name))
    if owner != NOBODY:
        return words(f"it was not linked with {owner.title}, or an older one is used").replace(
            remedy=f"install {owner.title} of the release that the package names, or build it "
            "again here"
        )
    if needer and _is_extension(needer):
        return words(
            "it was probably linked without the object file that has it. A build without nvcc "
            "leaves out CUDA sources"
        )
    return words(
        "another release of a library that it needs was loaded first, or it was built for another "
        "one"
    ).replace(remedy="find out which library should define it, and which file of it is loaded")


OLDER_COPY = KnownError(
    "CG842",
    "two files of one library are loaded",
    _HINTS,
    _PATTERN,
    "{0} needs {1} of {2}, and {4} an older or another {3} that lacks it: that one was found "
    "first, or was loaded first.",
    "start without LD_LIBRARY_PATH if it leads to another CUDA (unset LD_LIBRARY_PATH); else see "
    "whether pip list shows two releases of that nvidia-* package, and install the release that "
    "torch pins; else import torch before the package that has the other copy",
    command="cudaguard doctor --only CG902 --only CG903",
    links=(
        "https://github.com/pytorch/pytorch/issues/111469",
        "https://github.com/pytorch/pytorch/issues/119932",
        "https://github.com/cupy/cupy/issues/5211",
    ),
    nouns=("A library", "a function", "another library", "copy of it", "gets"),
    tell=partial(_of_symbol, "CG842"),
)

OTHER_CUDA = KnownError(
    "CG701",
    "an extension was built for another CUDA",
    _HINTS,
    _PATTERN,
    "{0} calls {1} of {2}, which no loaded library defines: {3}.",
    "build it again with the CUDA that torch.version.cuda names, or install a build for it",
    command="cudaguard check-extension FILE",
    links=("https://github.com/fundamentalvision/Deformable-DETR/issues/3",),
    certainty=LIKELY,
    nouns=("An extension", "a function", "the CUDA runtime", "it was built for another CUDA"),
    tell=partial(_of_symbol, "CG701"),
)

OTHER_TORCH = KnownError(
    "CG869",
    "an extension was built for another torch",
    _HINTS,
    _PATTERN,
    "{0} needs {1} of torch, which no loaded library defines: {2}.",
    f"{_REBUILD}; check that only one torch is found (python -m pip list -v shows where; "
    "PYTHONNOUSERSITE=1 hides those of the user)",
    command="cudaguard check-extension FILE",
    links=("https://github.com/Dao-AILab/flash-attention/issues/1644",),
    nouns=("An extension", "a function", "it was built for another torch"),
    tell=partial(_of_symbol, "CG869"),
)

OTHER_PYTHON = KnownError(
    "CG883",
    "an extension was built for another Python",
    (*_HINTS, "module was compiled for Python "),
    rf"{_PATTERN}|module was compiled for Python (\d+\.\d+), but the interpreter version is "
    r"incompatible: (\d+\.\d+)",
    "{0} {1}: it was built for another release of Python.",
    "build it again with this interpreter: delete its build folder, then python -m pip install "
    "--no-cache-dir --force-reinstall --no-deps PACKAGE",
    command="cudaguard check-extension FILE",
    nouns=("An extension", "is refused"),
    tell=partial(_of_symbol, "CG883"),
)

NO_OWNER = KnownError(
    "CG871",
    "no loaded library defines a function",
    _HINTS,
    _PATTERN,
    "{0} needs {1}, which no loaded library defines: {2}.",
    "build it again with nvcc on PATH, and read what the build says of the file that has this "
    "function",
    command="cudaguard check-extension FILE",
    links=("https://github.com/fundamentalvision/Deformable-DETR/issues/225",),
    certainty=LIKELY,
    nouns=("A library", "a function", "it was not linked, or belongs to a library that is another"),
    tell=partial(_of_symbol, "CG871"),
)

NEW_MKL = KnownError(
    "CG723",
    "MKL is newer than this torch can use",
    ("undefined symbol: iJIT_", "undefined symbol: __itt_"),
    r"undefined symbol: ((?:iJIT|__itt)_\w{1,60})",
    "torch was built with an MKL that defines {0}, and MKL 2024.1 and later do not.",
    "install the older MKL beside this torch: conda install 'mkl<2024.1'; or a newer torch",
    command="conda install 'mkl<2024.1'",
    links=("https://github.com/pytorch/pytorch/issues/123097",),
    nouns=("functions for profilers",),
)

KNOWN = (NEW_MKL, OLDER_COPY, OTHER_CUDA, OTHER_TORCH, OTHER_PYTHON, NO_OWNER)
