"""CuPy and numba-cuda on GPUs that the compilers in this process do not know."""

from __future__ import annotations

import json
import sys

from cudaguard.elf.library_version import version_of
from cudaguard.elf.loaded import first_entry, loaded_libraries
from cudaguard.elf.memory import Memory
from cudaguard.features.gpu_architectures.architectures import KNOWN, NUMBA_WHEELS, NVRTC_WHEELS
from cudaguard.features.gpu_architectures.messages import kernel_compilers as wording
from cudaguard.features.gpu_architectures.policy.architectures import CANNOT_RUN, NO_JIT
from cudaguard.features.gpu_architectures.policy.kernel_compilers import (
    cupy_asks,
    cupy_verdict,
    numba_verdict,
    parts,
    release_that_fits,
)
from cudaguard.files import os, read_bytes
from cudaguard.system.gpus import Compiler
from cudaguard.system.modules import peek
from cudaguard.system.nvrtc import mapped_copies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudaguard.model import Finding

    Capability = tuple[int, int]
    Devices = dict[int, Capability]

_NVJITLINK = "libnvJitLink.so"


def findings_of(devices: tuple[Capability, ...], default: int) -> list[Finding]:
    """Return what is to be said of CuPy and numba-cuda, as far as they are imported.

    Only compilers that are in the process are judged: which others would be taken is not certain.

    Args:
        devices: The compute capabilities of the devices that may be used.
        default: The device that is used unless the program says otherwise: what is wrong with
            others only is not warned of.
    """
    return [*_of_cupy(devices, default), *_of_numba(devices, default)]


def known_devices() -> tuple[Capability, ...]:
    """Return the compute capabilities of the devices; nothing before somebody asks for them.

    The driver is asked if it is initialized, else NVML if somebody has loaded it.
    """
    from cudaguard.system.devices import compute_capabilities
    from cudaguard.system.driver import Driver
    from cudaguard.system.preload import is_mapped

    found = Driver().capabilities()
    return found if found or not is_mapped("libnvidia-ml.so.1") else compute_capabilities()


def _of_cupy(devices: tuple[Capability, ...], default: int) -> list[Finding]:
    module = sys.modules.get("cupy")
    said, folder = str(peek(module, "__version__")), peek(module, "__path__")
    cupy, nvrtc = parts(said), _serving(mapped_copies(), _major_of_cupy(folder))
    if module is None or cupy is None or nvrtc is None or nvrtc.release not in KNOWN:
        return []
    release = nvrtc.release
    is_ptx = bool(peek(sys.modules.get("cupy.cuda.compiler"), "_use_ptx"))

    def judged(wanted: str) -> Devices:
        return {
            ordinal: device
            for ordinal, device in enumerate(devices)
            if cupy_verdict(device, release, cupy, is_ptx=is_ptx) == wanted
        }

    def better_for(some: Devices) -> wording.Better:
        def fits(other: Capability) -> bool:
            verdicts = [cupy_verdict(d, other, cupy, is_ptx=is_ptx) for d in some.values()]
            return not {NO_JIT, CANNOT_RUN} & set(verdicts)

        wheels = {major: (wheel,) for major, wheel in NVRTC_WHEELS.items()}
        return _better(release[0], fits, wheels)

    def asked_for(some: Devices) -> list[int]:
        return sorted({cupy_asks(device, release, cupy) for device in some.values()})

    found = []
    refused, others = judged(NO_JIT), judged(CANNOT_RUN)
    if refused:
        found.append(
            wording.cupy_refused(
                said, refused, nvrtc, asked_for(refused), sorted(KNOWN[release]),
                better_for(refused), loud=default in refused,
            )
        )  # fmt: skip
    if others:
        found.append(
            wording.cupy_for_others(
                said, others, nvrtc, asked_for(others), better_for(others), loud=default in others
            )
        )
    return found


def _of_numba(devices: tuple[Capability, ...], default: int) -> list[Finding]:
    module = sys.modules.get("numba.cuda")  # of numba-cuda, or in its absence numba's own
    said = str(peek(sys.modules.get("numba_cuda"), "__version__"))
    numba, bindings = parts(said), parts(peek(sys.modules.get("cuda.bindings"), "__version__"))
    forced = peek(peek(module, "config"), "FORCE_CUDA_CC") or os.environ.get("NUMBA_FORCE_CUDA_CC")
    if numba is None or bindings is None or forced:
        return []
    for copies in (mapped_copies(), _mapped_nvjitlink()):
        used = _serving(copies, bindings[0])
        if used is None or used.release not in KNOWN:
            continue
        release, links = used.release, used.name.startswith(_NVJITLINK)
        lacking = {
            ordinal: device
            for ordinal, device in enumerate(devices)
            if numba_verdict(device, release, numba, links=links) == NO_JIT
        }
        if lacking:
            better = _better(release[0], _fits_numba(lacking, numba), NUMBA_WHEELS)
            known = sorted(KNOWN[release])
            loud = default in lacking
            return [wording.numba_lacks(said, lacking, used, known, better, loud=loud)]
    return []


def _fits_numba(devices: Devices, numba: Capability) -> Callable[[Capability], bool]:
    return lambda release: all(
        numba_verdict(device, release, numba, links=True) != NO_JIT for device in devices.values()
    )


def _better(
    major: int, fits: Callable[[Capability], bool], wheels: Mapping[int, tuple[str, ...]]
) -> wording.Better:
    found = release_that_fits(major, fits)
    is_same = found is not None and found[0] == major
    return wording.Better(found, wheels.get(major, ()) if is_same else ())


def _serving(copies: list[Compiler], major: int | None) -> Compiler | None:
    """Return the first copy of a major release; where that is not known, the only one."""
    if major is None:
        return copies[0] if len(copies) == 1 else None
    return next((copy for copy in copies if copy.name.endswith(f".so.{major}")), None)


def _major_of_cupy(folders: object) -> int | None:
    """Return the major release of CUDA that a wheel of CuPy was built for; None if it is none."""
    try:
        folder = folders[0]  # type: ignore[index]  # of a package, or none
        said = json.loads(read_bytes(os.path.join(folder, ".data", "_wheel.json"), 1 << 20))
        return int(str(said["cuda"]).partition(".")[0])
    except (IndexError, KeyError, OSError, RecursionError, TypeError, ValueError):
        return None


def _mapped_nvjitlink() -> list[Compiler]:
    try:
        with Memory() as memory:
            paths = [library.path for library in loaded_libraries(memory, first_entry())]
    except OSError:
        return []
    found = []
    for path in paths:
        name = os.path.basename(path)
        if name.startswith(_NVJITLINK):
            soname = f"{_NVJITLINK}.{name[len(_NVJITLINK) + 1 :].partition('.')[0]}"
            version = version_of(path, soname, "nvjitlink")
            release = (version[0], version[1]) if len(version) > 1 else None
            found.append(Compiler(path, soname, release))
    return found
