"""The copies of NVRTC, which of them serves torch, and a newer one where that knows no GPU here.

All is read from files, and nothing is loaded: the first copy in a process serves all of it. The
release of a copy is in the name of the library beside it, ``libnvrtc-builtins.so.12.8``.

Source: NVRTC documentation, "Basic Usage"; how NVIDIA's and PyTorch's wheels are laid out.
"""

from __future__ import annotations

import re
import sys
from glob import glob

from cudaguard.core.repairs import Done, Refused
from cudaguard.elf.process import loaded_files
from cudaguard.elf.reader import read_elf
from cudaguard.elf.search_path import SearchPath, fits, read_place
from cudaguard.features.gpu_architectures.policy import TARGETS, Nvrtc, Torch, can_compile, has_code
from cudaguard.files import escape, names_in, os
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.preload import CUDA_FOLDERS, below, has_driver, is_mapped, open_all, soname_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.repairs import Outcome, Request
    from cudaguard.features.gpu_architectures.policy import Pair

_NVML = "libnvidia-ml.so.1"
_NVRTC = "libnvrtc"
# What of torch is linked against NVRTC, and opened together with it.
_TORCH_PART = "libcaffe2_nvrtc.so"
_BUILTINS = re.compile(r"libnvrtc-builtins(?:-[0-9a-f]+)?\.so\.(\d+)\.(\d+)(?:\.\d+)?")
_FILE = re.compile(r"libnvrtc\.so\.(\d+)\.(\d+)\.\d+")  # as toolkits name it
_HASH = re.compile(r"-[0-9a-f]{8}(?=\.so)")  # in older wheels of PyTorch
_TOOLKITS = ("/usr/local/cuda*",)


def mapped_copies() -> list[Nvrtc]:
    """Return the copies in this process; of one name the first serves all who ask for it."""
    return [
        _copy(file)
        for file in loaded_files()
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
    return Nvrtc(path, soname_of(path), _release(path))


def _release(path: str) -> tuple[int, int] | None:
    if (match := _FILE.fullmatch(os.path.basename(path))) is not None:
        return int(match[1]), int(match[2])
    found = map(_BUILTINS.fullmatch, names_in(os.path.dirname(path)))
    releases = {(int(match[1]), int(match[2])) for match in found if match is not None}
    return releases.pop() if len(releases) == 1 else None


def preload_newer_nvrtc(request: Request) -> Iterator[Outcome]:
    """Open an NVRTC that knows the GPUs of this machine before torch, whose own does not.

    Where one of the GPUs works as it is nothing is changed: the code that it gets would be another
    compiler's. NVML is asked, which loads it, only where another copy knows more.
    """
    if not request.permit.acts or request.name != "torch":
        return
    if not has_driver():
        return
    folder = os.path.dirname(request.path or "")
    own = copy_for(folder)
    if own is None or own.release not in TARGETS or is_mapped(own.name):
        return
    others = {c.release: c for c in installed_copies(own.name) if c.release in TARGETS}
    if not any(TARGETS[release] - TARGETS[own.release] for release in others if release):
        return
    from cudaguard.system.torch_build import architectures, build_of

    torch = Torch(build_of(folder).get("__version__", ""), architectures(folder))
    devices = [device for device in _ask_nvml(request) if has_code(torch, device)]
    if not devices or any(can_compile(torch, own.release, device) for device in devices):
        return
    fitting = [r for r in others if r and all(can_compile(torch, r, d) for d in devices)]
    if fitting:  # the next one to that which torch was made with
        better = others[min(fitting)]
        _, error = open_all(better.with_builtins())
        if error is not None:
            from cudaguard.core.findings import not_preloaded

            yield Refused(not_preloaded(request.rule, request.name, error), cause=error)
        else:
            from cudaguard.features.gpu_architectures import findings

            how = findings.as_it_knows(better, own, devices)
            yield Done(better.path, f"loaded before {request.name}, {how}")


def _ask_nvml(request: Request) -> tuple[Pair, ...]:
    """Return the compute capabilities of the GPUs here; that NVML is loaded is noted."""
    from cudaguard.system.machine import compute_capabilities

    was_there = is_mapped(_NVML)
    devices = compute_capabilities()
    if not was_there and is_mapped(_NVML):
        words = f"{_NVML}: loaded before {request.name}, to ask it, by {request.rule.id}"
        request.reporter.changed(words, stays=True)
    return devices
