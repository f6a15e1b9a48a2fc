"""Libraries of this process that have no code for its GPUs."""

from __future__ import annotations

from glob import escape, glob

from cudaguard.config import local_rank
from cudaguard.elf.library_facts import GpuCode, gpu_code
from cudaguard.features.gpu_architectures import findings as wording
from cudaguard.features.gpu_architectures.policy import code_for
from cudaguard.files import os, own_errors
from cudaguard.system.driver import Driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaguard.core.findings import Finding
    from cudaguard.features.gpu_architectures.policy import Pair

_INSTALLED = ("/site-packages/", "/dist-packages/")
_KNOWN = ("torch", "nvidia")  # torch says what it has code for; NVIDIA's serve each other
_MOST_FILES = 64  # of one package


def without_code(paths: Iterable[str]) -> Iterator[Finding]:
    """Yield what is to be said of those that have code for other GPUs only.

    One of several files of a package may be the one that serves, so all of them are looked at.
    """
    devices: dict[int, Pair] = {}
    for path in paths:
        folder, name = _package_of(path)
        code = GpuCode() if name in _KNOWN else _code_of(path)
        if code.architectures:  # only then is the driver asked
            devices = devices or dict(enumerate(Driver().capabilities()))
        if not _lacking({path: code}, devices):
            continue
        files = [path, *glob(f"{escape(folder)}/**/*.so*", recursive=True)] if folder else [path]
        codes = {file: _code_of(file) for file in files[:_MOST_FILES]}
        lacking = _lacking(codes, devices)
        if lacking:
            is_loud = (local_rank(os.environ) or 0) in lacking
            found = {file: code for file, code in codes.items() if code.architectures}
            yield wording.library_cannot_run(name, lacking, found, loud=is_loud)


def _package_of(path: str) -> tuple[str, str]:
    """Return the folder of the package that a library is part of, and its name.

    No folder for a module by itself. A toolkit's library, which has a number, counts as NVIDIA's.
    """
    for installed in _INSTALLED:
        before, found, rest = path.rpartition(installed)
        if found:
            name, is_inside, _ = rest.partition("/")
            return (before + found + name, name) if is_inside else ("", name.partition(".")[0])
    name = os.path.basename(path)
    return "", "nvidia" if ".so." in name else name.partition(".")[0]


def _code_of(path: str) -> GpuCode:
    try:
        return gpu_code(path)
    except own_errors(OSError, OverflowError, ValueError):
        return GpuCode()


def _lacking(codes: dict[str, GpuCode], devices: dict[int, Pair]) -> dict[int, Pair]:
    """Return the devices that none of these files, and at least one has GPU code, can serve."""
    found = [code for code in codes.values() if code.architectures]
    return {
        number: device
        for number, device in devices.items()
        if found and all(code_for(device, code) == "" for code in found)
    }
