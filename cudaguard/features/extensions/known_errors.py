"""What a loader's message means by the owner of the library, and what the files here add to it."""

from __future__ import annotations

import re
import shlex
from functools import partial

from cudaguard.core.known_errors import Explainer, known_in
from cudaguard.elf.process import mapped_files
from cudaguard.features.extensions import findings, known_symbols
from cudaguard.files import os
from cudaguard.system.name_owners import (
    FFMPEG,
    cuda_of,
    debian_package_of,
    requirement_of,
    soname_of,
    wheel_of,
)
from cudaguard.system.preload import CUDA_FOLDERS, installed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.findings import Finding
    from cudaguard.core.known_errors import KnownError

# --- Libraries that are not found -----------------------------------------------------------------

_OWNERS = (
    ("CG867", re.compile(r"(?:lib)?(?:c10|torch(?:_cpu|_python|_global_deps)?|shm)\.(?:so|d[ly])")),
    ("CG882", re.compile(r"(?:lib)?(?:c10|torch)_(?:cuda|hip|xpu)\w{0,40}\.(?:so|dll)")),
    ("CG708", re.compile("libbitsandbytes")),
    # The driver's: see CG864. NCCL and musl's loader try others that need not be there.
    ("", re.compile(r"(?:lib)?(?:cuda|nvidia-ml|nvcu\w{2,5}|nvml|nccl-\w{1,9})\.|ld-linux")),
)  # fmt: skip


def of_library(id: str, known: KnownError, match: re.Match[str]) -> Finding | None:
    """Return what the absence of a library means, None if another id is for it."""
    library = match["library"].rstrip(".")
    soname = soname_of(library)
    usual = "CG868" if wheel_of(soname) else "CG702"
    if next((owner for owner, names in _OWNERS if names.match(library)), usual) != id:
        return None
    if id == "CG868":
        return _of_nvidia(known, library, soname)
    return known.with_words(library=library, remedy=_remedy(library))


def _of_nvidia(known: KnownError, library: str, soname: str) -> Finding:
    cuda, (stem, _, number) = cuda_of(soname), soname.partition(".so.")
    if cuda:
        why = f"what needs it was built for CUDA {cuda}"
    elif number and number[0] not in "01":
        why = f"what needs it was built for version {number.partition('.')[0]} of {stem}"
    else:
        why = "what needs it has no copy of its own"
    package = requirement_of(soname)
    if not package:
        return known.with_words(library=library, why=why).replace(
            remedy="install a build for the CUDA that torch.version.cuda names: for this one there "
            "is no package",
            command="",
        )
    other = "" if cuda or "-cu12" not in package else " (-cu13 or -cu11 for another CUDA)"
    found = known.with_words(library=library, why=why, package=shlex.quote(package), other=other)
    if library != soname:  # of Windows, or as jax says it of one that is missing or too old
        first = "start without LD_LIBRARY_PATH, where an older copy may be (unset LD_LIBRARY_PATH)"
        if library.endswith(".dll"):
            first = "import torch first if it was built for that CUDA, or have its folder in PATH"
        return found.replace(remedy=f"{first}; else install the package that has it: {package}")
    return found


def _remedy(library: str) -> str:
    """Return what to do for a library that is none of NVIDIA's or torch's."""
    if library.startswith("libpython"):
        return (
            "build what needs it again with this interpreter: python -m pip install "
            "--no-cache-dir --force-reinstall --no-deps PACKAGE"
        )
    package = debian_package_of(library)
    if package:
        wanted = f"the FFmpeg that has {library}" if package == FFMPEG else "it"
        return f"install {wanted} (Debian, Ubuntu: apt-get install {package})"
    return (
        "install the package that has it (apt-file search, conda search), or a build of the "
        "program that includes it"
    )


_SONAME = re.compile(r"\blib[\w+-]{1,60}\.so(?:\.\d+)*")


def with_files(finding: Finding) -> Finding:
    """Return what a message means, with the files here that it is about."""
    sonames = _SONAME.findall(finding.what)
    if not sonames:
        return finding
    soname = sonames[-1]
    folders = (CUDA_FOLDERS, os.path.join("torch", "lib"))
    found = [file for folder in folders for file in installed(os.path.join(folder, soname))]
    mapped: list[str] = []
    if finding.id == known_symbols.OLDER_COPY:
        stem = f"{soname.partition('.so')[0]}.so"
        mapped = sorted(file for file in mapped_files() if os.path.basename(file).startswith(stem))
        found = [file for file in found if os.path.realpath(file) not in mapped]
    elif found:  # then nothing is to be installed
        finding = finding.replace(
            remedy=f"load the installed {soname} by its path: import torch first if it uses this "
            "version, or have a rule open it (preload)",
            command="",
        )
    more = (*(f"in this process: {file}" for file in mapped), *(f"installed: {f}" for f in found))
    return finding.replace(evidence=(*finding.evidence, *more))


KNOWN = known_in(
    __file__,
    vars(findings),
    **{id: partial(of_library, id) for id in ("CG867", "CG882", "CG868", "CG702")},
    **{id: partial(known_symbols.of_symbol, id) for id in known_symbols.IDS},
)
EXPLAINER = Explainer(KNOWN, with_files, ("CG868", known_symbols.OLDER_COPY))
