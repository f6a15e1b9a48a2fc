"""Contexts created ahead, defaults of variables, modules put in place of others.

The primary context of one device is created on request, by setting, or because a rule needs one,
and kept for the life of the process. It is retained and not made current: torch, CuPy and
everything else that uses the CUDA runtime finds it active and joins it, and the current context of
no thread changes.

Source: CUDA driver API reference, "Initialization", "Device Management", "Primary Context
Management"; CUDA programming guide, "CUDA Environment Variables".
"""

from __future__ import annotations

import sys
from operator import index

from cudaguard.config import LOCAL_RANK_VARIABLES, local_rank
from cudaguard.core.findings import prerequisite_failed
from cudaguard.core.import_plan import upcoming
from cudaguard.core.prerequisites import import_first
from cudaguard.core.repairs import Done, WouldDo
from cudaguard.core.reports import Later
from cudaguard.core.rule import actions_of, values_of
from cudaguard.errors import ContextError
from cudaguard.features.cuda_init import findings
from cudaguard.features.cuda_init.detector import CudaDetector
from cudaguard.files import os
from cudaguard.hooks.caller import caller_frame
from cudaguard.model import TYPE_CHECKING, Record
from cudaguard.system import peek
from cudaguard.system.driver import NOT_INITIALIZED, Driver
from cudaguard.system.statuses import meaning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.repairs import Outcome, Request

_INSTANCE = " MIG "  # in the name of a part of a GPU: "NVIDIA A100-SXM4-40GB MIG 1g.5gb"


class Device(Record):
    """A CUDA device as this process sees it.

    Args:
        ordinal: Its number among the visible devices. NVML counts differently; never mix them.
        uuid: As in ``GPU-8f3c...``; empty if the driver does not say.
        pci_bus_id: As in ``0000:3b:00.0``; empty if the driver does not say.
        name: Its product name.
    """

    ordinal: int
    uuid: str = ""
    pci_bus_id: str = ""
    name: str = ""


class ContextHandle(Record):
    """A primary context that `create_context` has retained for the life of the process.

    Args:
        device: The device it is on.
    """

    device: Device


# Handles of the contexts that were retained here, by process and ordinal: never released, as the
# order against the destructors of torch and the runtime at exit is not ours to choose.
_retained: dict[tuple[int, int], ContextHandle] = {}


def create(core: Dispatch, device: int | str | None) -> ContextHandle:
    """Create a context and take note of it; arguments and errors as for `create_context`."""
    core.start_detection()
    if (detector := core.detection.made(CudaDetector)) is None:
        handle = create_context(device)
    else:
        handle = detector.on_request(lambda: create_context(device))
    subject = f"CUDA context on device {handle.device.ordinal} ({handle.device.name})"
    if all(done.subject != subject for done in core.reporter.repairs):
        core.reporter.repaired("", "create_context", subject, "created", frame=caller_frame())
    return handle


def create_if_allowed(core: Dispatch, rule: str, target: str, device: str = "") -> None:
    """Create a context as a prerequisite, where the setting allows it; report one that fails.

    A rule names no device, and a setting that asks for one no rule.
    """
    if not device:
        # A worker that was forked may never use CUDA, and each context costs memory.
        if core.context == "none" or os.getpid() != core.reporter.home:
            return
        device = "" if core.context == "auto" else core.context
    try:
        create(core, device or None)
    except ContextError as error:
        why = f"that rule {rule} wants before {target}" if rule else "that `context` asks for"
        what = f"cudaguard could not create the CUDA context {why}."
        finding = findings.NO_CONTEXT.found(what, str(error))
        core.reporter.found(finding, caller_frame(), stop=Later(f"{finding.what} {error}"))


def create_context(device: int | str | None) -> ContextHandle:
    """Retain the primary context of a device; the same handle again while it is active.

    After a device reset (``cudaDeviceReset``) it is created again. It is retained at each call:
    after a reset somebody else may have made the active one, and nobody says who holds it.

    Raises:
        ContextError: It cannot be created, with the reason.
    """
    import ctypes

    driver = Driver()
    try:
        driver.load()
    except OSError as error:
        raise ContextError(
            f"there is no NVIDIA driver that can be loaded here: {error}. In a container, start it "
            "with the NVIDIA runtime (docker run --gpus all)"
        ) from None
    status = driver.call("cuInit", 0)
    if status == NOT_INITIALIZED:  # which this very call answers in a forked child only
        raise ContextError(
            "CUDA was initialized before this process was forked, and cannot be used in it; start "
            "it by spawn or forkserver, or create the context in the child only"
        )
    _check(status, "cuInit")
    number = ctypes.c_int()
    _check(driver.call("cuDeviceGetCount", ctypes.byref(number)), "cuDeviceGetCount")
    if not number.value:
        raise ContextError(
            f"no CUDA device is visible{_visible()}; see whether nvidia-smi lists one, and what "
            "CUDA_VISIBLE_DEVICES says"
        )
    chosen = _choose(device, [_described(driver, ordinal) for ordinal in range(number.value)])
    key = os.getpid(), chosen.ordinal
    is_known = key in _retained and chosen.ordinal in driver.state().active
    status = driver.call(
        "cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), chosen.ordinal
    )
    _check(status, f"cuDevicePrimaryCtxRetain for device {chosen.ordinal} ({chosen.name})")
    if not is_known:
        _retained[key] = ContextHandle(chosen)
        notify_torch()
    return _retained[key]


def notify_torch() -> None:
    """Have torch take note that CUDA is initialized, where a context of ours has done that.

    torch says so in a forked child only if it has counted devices itself. A torch without CUDA has
    no such function.
    """
    count = getattr(peek(sys.modules.get("torch"), "_C"), "_cuda_getDeviceCount", None)
    if count is not None and any(pid == os.getpid() for pid, _ in _retained):
        count()


def _check(status: int, call: str) -> None:
    if status:
        raise ContextError(f"{call} answers {status}: {meaning(status)}")


def _listed(devices: list[Device]) -> str:
    return "; ".join(f"{d.ordinal}: {d.name} {d.uuid} {d.pci_bus_id}" for d in devices)


def _visible() -> str:
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if value is None else f" (CUDA_VISIBLE_DEVICES={value!r})"


def _described(driver: Driver, ordinal: int) -> Device:
    """Return what an initialized driver says of a device."""
    import ctypes

    text, uuid = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    name = bus = identity = ""
    if not driver.call("cuDeviceGetName", text, 256, ordinal):
        name = text.value.decode("utf-8", "replace")
    if not driver.call("cuDeviceGetPCIBusId", text, 256, ordinal):
        bus = text.value.decode("ascii", "replace").lower()
    if not driver.call("cuDeviceGetUuid_v2", uuid, ordinal):
        digits = bytes(uuid).hex()
        cuts = (0, 8, 12, 16, 20, 32)
        kind = "MIG-" if _INSTANCE in name else "GPU-"
        identity = kind + "-".join(digits[a:b] for a, b in zip(cuts, cuts[1:]))
    return Device(ordinal, identity, bus, name)


def _choose(device: int | str | None, devices: list[Device]) -> Device:
    if device is None:  # that of the local rank, where there is one and it sees several
        said = next(((v, os.environ[v]) for v in LOCAL_RANK_VARIABLES if os.environ.get(v)), None)
        if said is None or len(devices) == 1:
            return devices[0]
        if (rank := local_rank(os.environ)) is None:
            raise ContextError(f"{said[0]}={said[1]!r}: expected the number of this process's rank")
        if rank >= len(devices):
            raise ContextError(
                f"{said[0]}={rank}, but only {len(devices)} devices are visible{_visible()}; start "
                "fewer processes on this machine, or show more devices"
            )
        return devices[rank]
    try:
        ordinal = int(device) if isinstance(device, str) else index(device)
    except (TypeError, ValueError):
        raise ContextError(
            f"device {device!r}: expected its number, of: {_listed(devices)}"
        ) from None
    if isinstance(device, bool) or not 0 <= ordinal < len(devices):
        raise ContextError(
            f"device {device!r}: {len(devices)} visible{_visible()}, numbered from 0: "
            + _listed(devices)
        )
    return devices[ordinal]


def set_env(request: Request) -> Iterator[Outcome]:
    """Set the variables that a rule wants set before a module, where the program has not."""
    for action in actions_of(request.rule, "set_env"):
        name, value = action["set_env"], action["value"]
        beside = action.get("beside", "")  # which the program must have imported, or be about to
        is_alone = beside and beside not in sys.modules
        if name in os.environ:
            continue
        if is_alone and not upcoming(frozenset((beside,)), request.name).certain:
            continue
        if request.permit.acts:
            os.environ[name] = value
            yield Done(f"{name}={value}", f"set before {request.name}")
        else:
            yield WouldDo(
                findings.default_missing(request.rule, name, value, request.name, request.where)
            )


def replace_module(request: Request) -> Iterator[Outcome]:
    """Publish another module under the name of the one that is about to be imported."""
    name = request.name
    if not request.permit.acts or name in sys.modules or name not in request.rule.watch:
        return
    for other in values_of(request.rule, "replace_module"):
        outcome = import_first(other)
        module = sys.modules.get(other)
        if isinstance(outcome, BaseException):
            yield WouldDo(prerequisite_failed(request.rule.id, other, name, outcome))
        elif module is not None:
            # The loader finds it there and runs nothing.
            sys.modules[name] = module
            yield Done(name, f"replaced with {other}")
            return
