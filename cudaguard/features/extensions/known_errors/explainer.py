"""All messages of this feature, and what the files of this environment add to them."""

from __future__ import annotations

import re

from cudaguard.core.known_errors import Explainer
from cudaguard.elf.process import mapped_files
from cudaguard.features.extensions.known_errors import libraries, pairs, symbols
from cudaguard.files import os
from cudaguard.system.preload import CUDA_FOLDERS, installed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

_MISSING, _OLDER = libraries.MISSING_CUDA.id, symbols.OLDER_COPY.id
_SONAME = re.compile(r"\blib[\w+-]{1,60}\.so(?:\.\d+)*")
_TORCH_LIBRARIES = os.path.join("torch", "lib")


def with_files(finding: Finding) -> Finding:
    """Return what a message means, with the files here that it is about.

    Args:
        finding: What is known of the message.
    """
    soname = _SONAME.findall(finding.what)
    if not soname:
        return finding
    return _ADDING[finding.id](finding, soname[-1])


def _of_missing(finding: Finding, soname: str) -> Finding:
    """Tell where the library is, if a package here has it: then nothing is to be installed."""
    found = _installed(soname)
    if not found:
        return finding
    return finding.replace(
        evidence=(*finding.evidence, *(f"installed: {file}" for file in found)),
        remedy=f"load the installed {soname} by its path: import torch first if it uses this "
        "release, or have a rule open it (preload)",
        command="",
    )


def _of_older(finding: Finding, soname: str) -> Finding:
    """Tell which file of the library is in this process, and which others there are."""
    stem = soname.partition(".so")[0] + ".so"
    mapped = sorted(file for file in mapped_files() if os.path.basename(file).startswith(stem))
    others = [file for file in _installed(soname) if os.path.realpath(file) not in mapped]
    return finding.replace(
        evidence=(
            *finding.evidence,
            *(f"in this process: {file}" for file in mapped),
            *(f"installed: {file}" for file in others),
        )
    )


def _installed(soname: str) -> tuple[str, ...]:
    folders = (CUDA_FOLDERS, _TORCH_LIBRARIES)
    return tuple(file for folder in folders for file in installed(os.path.join(folder, soname)))


_ADDING = {_MISSING: _of_missing, _OLDER: _of_older}
EXPLAINER = Explainer((*symbols.KNOWN, *libraries.KNOWN, *pairs.KNOWN), with_files, _ADDING)
