"""Finds GPUs that torch, its NVRTC, or a library that is mapped has no code for.

torch keeps a list of what is to be done when it initializes CUDA, its own checks among it. Ours is
added, so that it comes at the first use, when the devices are certain. Libraries are looked at
then, and as they come from then on.
"""

from __future__ import annotations

import sys

from cudaguard.files import escape, os, own_errors
from cudaguard.hooks.barrier import ask
from cudaguard.hooks.caller import caller_frame, frame_outside_of
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import peek
from cudaguard.system.loader_list import LoaderNews

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.findings import Finding
    from cudaguard.elf.library_facts import GpuCode
    from cudaguard.features.gpu_architectures.policy import Nvrtc, Pair, Torch

_QUEUED = "torch.cuda: looks at the architectures of GPUs when it initializes CUDA"


class ArchitectureDetector:
    """Waits for somebody to use CUDA."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._queue: list[tuple[Callable[[], None], list[str]]] | None = None
        self._news, self._initialized_in = LoaderNews(), 0  # the process in which CUDA is

    def begin(self) -> None:
        """Look at a torch that is there already."""
        if "torch" in sys.modules:
            self.imported("torch")

    def imported(self, _: str) -> None:
        """Look at once if torch uses CUDA already, else when it does."""
        torch = sys.modules.get("torch")
        if peek(peek(torch, "version"), "cuda") is None:  # a build without CUDA
            return
        cuda = peek(torch, "cuda")
        if peek(cuda, "_initialized") is True:
            self._scan()
            return
        queue = peek(cuda, "_queued_calls")
        is_heard = self._core.permit().tells
        if not is_heard or not isinstance(queue, list) or queue is self._queue:
            return
        self._queue = queue
        queue.append((self._scan, []))
        self._core.reporter.changed(_QUEUED, stays=False)

    def cuda_initialized(self) -> None:
        """Look at the libraries that are mapped: what devices there are is known from now on."""
        self._initialized_in = os.getpid()
        self._look_at_libraries()

    def mapped(self, _: NativeLoad | None) -> None:
        """Look at what has come."""
        if self._initialized_in == os.getpid():  # a forked one must not ask the driver
            self._look_at_libraries()

    def forget(self) -> None:
        """Take out of torch's list what was put there."""
        if self._queue is not None:
            self._queue[:] = [entry for entry in self._queue if entry[0] != self._scan]
            self._queue = None
            self._core.reporter.put_back(_QUEUED)

    def _scan(self) -> None:
        """Look; what is wrong with that is not torch's concern, which would fail over it."""
        if self._core.is_installed:
            what = "looking at the architectures of GPUs"
            ask(self._core, what, self._look_at_torch, prints=True)

    def _look_at_torch(self) -> None:
        for finding in look_at_torch():
            self._core.reporter.found(finding, frame_outside_of("torch"))
        self.cuda_initialized()

    def _look_at_libraries(self) -> None:
        for finding in without_code(self._news.names()):
            self._core.reporter.found(finding, caller_frame())


def look_at_torch() -> Iterator[Finding]:
    """Yield what is to be said of the imported torch on the devices that it may use.

    Nothing before CUDA is initialized, and of a torch without CUDA.
    """
    torch = sys.modules.get("torch")
    flags = peek(peek(torch, "_C"), "_cuda_getArchFlags")
    from cudaguard.features.gpu_architectures.policy import Torch
    from cudaguard.features.gpu_architectures.repair import copy_for
    from cudaguard.system.driver import Driver
    from cudaguard.system.torch_build import folder_of

    # A driver of our own: this may be a forked process, in which torch has just initialized CUDA.
    devices = Driver().capabilities() if flags is not None else ()
    if devices and peek(peek(torch, "version"), "cuda") is not None:
        built = Torch(str(peek(torch, "__version__")), tuple(str(flags() or "").split()))
        yield from findings_of(built, copy_for(folder_of("torch")), devices)


def findings_of(torch: Torch, nvrtc: Nvrtc | None, devices: tuple[Pair, ...]) -> Iterator[Finding]:
    """Yield what is to be said of a torch on devices; nothing where all is fine.

    What is wrong only with devices that the program does not use by default is not warned of.
    """
    from cudaguard.config import local_rank
    from cudaguard.features.gpu_architectures import findings as wording
    from cudaguard.features.gpu_architectures.policy import can_compile, has_code

    default = local_rank(os.environ) or 0
    usable = {n: device for n, device in enumerate(devices) if has_code(torch, device)}
    without_code = {n: device for n, device in enumerate(devices) if n not in usable}
    if without_code:
        yield wording.cannot_run(torch, without_code, loud=default in without_code)
    if nvrtc is not None:
        release = nvrtc.release
        without_compiler = {n: d for n, d in usable.items() if not can_compile(torch, release, d)}
        if without_compiler:
            yield wording.no_jit(torch, without_compiler, nvrtc, loud=default in without_compiler)


# --- Libraries of this process --------------------------------------------------------------------

_INSTALLED = ("/site-packages/", "/dist-packages/")
_KNOWN = ("torch", "nvidia")  # torch says what it has code for; NVIDIA's serve each other
_MOST_FILES = 64  # of one package


def without_code(paths: Iterable[str]) -> Iterator[Finding]:
    """Yield what is to be said of those that have code for other GPUs only.

    One of several files of a package may be the one that serves, so all of them are looked at.
    """
    from glob import glob

    from cudaguard.config import local_rank
    from cudaguard.elf.library_facts import GpuCode
    from cudaguard.features.gpu_architectures import findings as wording
    from cudaguard.features.gpu_architectures.policy import lack_code
    from cudaguard.system.driver import Driver

    devices: dict[int, Pair] = {}
    for path in paths:
        folder, name = _package_of(path)
        code = GpuCode() if name in _KNOWN else code_of(path)
        if code.architectures:  # only then is the driver asked
            devices = devices or dict(enumerate(Driver().capabilities()))
        if not any(lack_code([code], device) for device in devices.values()):
            continue
        files = [path, *glob(f"{escape(folder)}/**/*.so*", recursive=True)] if folder else [path]
        codes = {file: code_of(file) for file in files[:_MOST_FILES]}
        if lacking := {n: d for n, d in devices.items() if lack_code(codes.values(), d)}:
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


def code_of(path: str) -> GpuCode:
    """Return the GPU code of a file; of one that cannot be read, or is broken, none."""
    from cudaguard.elf.library_facts import GpuCode, gpu_code

    try:
        return gpu_code(path)
    except own_errors(OSError, OverflowError, ValueError):
        return GpuCode()
