"""``undefined symbol``: who should define the name, and why nobody does.

Source: glibc, ``elf/dl-lookup.c``; the reports linked.
"""

from __future__ import annotations

import os
import re
import shlex

from cudaguard.elf.library_facts import in_short
from cudaguard.system.name_owners import NOBODY, NVIDIA, PYTHON, TORCH, owner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.findings import Finding
    from cudaguard.core.known_errors import KnownError
    from cudaguard.system.name_owners import NameOwner

OLDER_COPY, OTHER_CUDA, OTHER_TORCH, OTHER_PYTHON, NO_OWNER, NOT_LINKED = IDS = (
    "CG842", "CG701", "CG869", "CG883", "CG871", "CG758",
)  # fmt: skip
_EXTENSION = re.compile(r"\.cpython-|\.abi3\.so$|\.pypy|(?:^|/)_[A-Za-z]\w*\.so$|\.pyd$")
_PACKAGE = re.compile(r"-packages/([A-Za-z]\w*?)(?:(?:_\d)?_(?:cuda|C)\b[^/]*$|/)")
_INTERFACE = re.compile(r"(?:aoti_)?torch_")
_TYPES = re.compile(r"_ZT[VISC]")
_DEVICE_CODE = ("__cudaRegisterLinkedBinary_", "__fatbinwrap_")
# Of glibc, in a message of musl: see CG759.
_OF_GLIBC = re.compile(r"__\w+_chk$|__cxa_|gnu_get_libc_version|backtrace$|mallinfo")


def of_symbol(id: str, known: KnownError, match: re.Match[str]) -> Finding | None:
    """Return what a message means, None if another id is for it."""
    if match.string.endswith("AttributeError: ", 0, match.start()):  # asked for by way of ctypes
        return None
    said = match.groupdict()
    if said.get("built"):
        why = f"was compiled for Python {said['built']}, and this is Python {said['python']}"
        return known.with_words(needer="The extension", why=why)
    needer, name, version = said.get("needer") or "", said["symbol"], said.get("version") or ""
    needer = needer if "." in needer or "/" in needer else ""
    owner = owner_of(name)
    if owner.library == "libittnotify" or (_OF_GLIBC.match(name) and "relocating" in match[0]):
        return None  # see CG723, CG759
    wanted, words = _judged(needer, name, version, owner)
    if wanted != id:
        return None
    found = known.with_words(**words)
    if id == OLDER_COPY and owner.kind != NVIDIA:
        found = found.replace(
            remedy=f"import the package with the newer {words['owner']} first (cudaguard bisect "
            "finds the order that works), or take both packages from one source: all from conda, "
            "or all from pip",
            command="cudaguard doctor --only CG903",
        )
    elif id == OLDER_COPY and owner.library == "libnccl":
        found = found.replace(command="cudaguard doctor --only CG905")
    elif id == NO_OWNER and owner != NOBODY:
        remedy = f"install {owner.title} of the version that is needed, or build the package again"
        found = found.replace(remedy=remedy)
    elif id == NO_OWNER and not (needer and _is_extension(needer)) and "cuda" not in name:
        remedy = "find out which library should define it, and which file of it is loaded"
        found = found.replace(remedy=remedy)
    file, package = shlex.quote(needer) if needer else "FILE", _PACKAGE.search(needer)
    return found.replace(
        command=found.command.replace("FILE", file),
        remedy=found.remedy.replace("PACKAGE", package[1] if package else "PACKAGE"),
    )


def _judged(needer: str, name: str, version: str, owner: NameOwner) -> tuple[str, dict[str, str]]:
    """Return the id that a name which nobody defines belongs to, and the words for it."""
    words = {"needer": os.path.basename(needer) or "A library", "symbol": _short(name)}
    if name.startswith(_DEVICE_CODE):
        return NOT_LINKED, words
    if owner.kind == PYTHON:
        return OTHER_PYTHON, {**words, "why": f"calls {name}, which this Python does not have"}
    if owner.kind == TORCH:
        return OTHER_TORCH, {**words, "why": _why_other_torch(name)}
    if version or (owner != NOBODY and not _is_extension(needer)):
        # An extension may not be linked to that library at all, unless it names the version.
        title = owner.title or version
        file = version or (f"{owner.library}.so" if owner.kind == NVIDIA else f"copy of {title}")
        # With a version the loader asked for that file.
        gets = "gets" if version else "probably gets"
        return OLDER_COPY, {**words, "owner": title, "file": file, "gets": gets}
    if owner.kind == NVIDIA:
        why = f"the extension was built for another CUDA, or without linking {owner.library}"
        return OTHER_CUDA, {**words, "symbol": name, "owner": owner.title, "why": why}
    if owner != NOBODY:
        why = f"it was not linked with {owner.title}, or an older one is used"
    elif needer and (_is_extension(needer) or "cuda" in name):
        why = (
            "it was probably linked without the object file that has it. A build without nvcc "
            "leaves out CUDA sources"
        )
    else:
        why = (
            "another version of a library that it needs was loaded first, or it was built for "
            "another one"
        )
    return NO_OWNER, {**words, "why": why}


def _is_extension(path: str) -> bool:
    """Return True for an extension module: a library has a name that begins with ``lib``."""
    return bool(_EXTENSION.search(path)) or not os.path.basename(path).startswith("lib")


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
        return (
            "it was built for another torch, or needs a torch with CUDA, and this one is CPU-only"
        )
    return "it was built for another torch, or with the other C++ ABI"
