"""The CUDA driver as this process has it now: whether it is mapped, initialized, has contexts.

Nothing is initialized, loaded or retained by asking. Before ``cuInit`` every call but a few
answers CUDA_ERROR_NOT_INITIALIZED, and that is the answer. The runtime (cudart) is never asked:
most of its queries initialize the driver.

Source: CUDA driver API reference, sections "Initialization", "Device Management", "Primary Context
Management" and "Context Management".
"""

from __future__ import annotations

from cudaguard.files import os, own_errors
from cudaguard.model import TYPE_CHECKING, Record
from cudaguard.system.loader_list import LoaderNews

if TYPE_CHECKING:
    from typing import Any

SONAME = "libcuda.so.1"
SUCCESS, NOT_INITIALIZED = 0, 3
NOWHERE = -1
_MAJOR, _MINOR = 75, 76  # CUdevice_attribute: compute capability
_FILE = "libcuda.so"


class DriverState(Record):
    """State of the CUDA driver in this process."""

    is_mapped: bool = False  # True if libcuda is in the process
    is_initialized: bool = False  # True if ``cuInit`` was called
    devices: int = 0  # how many devices are visible, once it is initialized
    active: tuple[int, ...] = ()  # ordinals of the devices whose primary context is active
    # Device of the context that is current in the calling thread, -1 for none
    current: int = NOWHERE


ABSENT, LOADED = DriverState(), DriverState(is_mapped=True)


class Driver:
    """Asks the driver, once somebody else has brought it into the process."""

    def __init__(self) -> None:
        self._news = LoaderNews()
        self._functions: dict[str, Any] = {}
        self._handle = 0
        # Had nobody initialized it when this process was forked, and was no other thread there?
        self.may_be_asked_in_child = False
        self._found_in = 0  # the process in which libcuda was found
        # May ctypes be imported, if that is not there? Otherwise there is no driver for us.
        self.may_ask = True

    def state(self) -> DriverState:
        """Return what the driver says now.

        In a forked process it is asked only where that is known to be safe: a thread of the parent
        may have been inside it, and its locks are held forever then.
        """
        if not self._handle and not self._find():
            return ABSENT
        import ctypes

        if self._found_in != os.getpid():
            if not self.may_be_asked_in_child:
                return LOADED
            self._found_in, self.may_be_asked_in_child = os.getpid(), False
        number = ctypes.c_int()
        if self.call("cuDeviceGetCount", ctypes.byref(number)) != SUCCESS:
            return LOADED
        flags, active, current = ctypes.c_uint(), ctypes.c_int(), ctypes.c_int()
        devices = []
        for device in range(number.value):
            answer = self.call(
                "cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active)
            )
            if answer == SUCCESS and active.value:
                devices.append(device)
        # Fails where no context is current.
        has_current = self.call("cuCtxGetDevice", ctypes.byref(current)) == SUCCESS
        return DriverState(
            is_mapped=True,
            is_initialized=True,
            devices=number.value,
            active=tuple(devices),
            current=current.value if has_current else NOWHERE,
        )

    def load(self) -> None:
        """Load the driver library, without initializing it; OSError where that is impossible."""
        import _ctypes

        if not self._handle:
            self._handle = _ctypes.dlopen(SONAME, os.RTLD_NOW)
            self._found_in = os.getpid()

    def capabilities(self) -> tuple[tuple[int, int], ...]:
        """Return the compute capability of each visible device; nothing before ``cuInit``."""
        import ctypes

        found = []
        major, minor = ctypes.c_int(), ctypes.c_int()
        for device in range(self.state().devices):
            if self.call("cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, device) or self.call(
                "cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, device
            ):
                return ()
            found.append((major.value, minor.value))
        return tuple(found)

    def cuda_version(self) -> str:
        """Return the last CUDA that the driver can do, ``12.4``; empty if it does not say."""
        import ctypes

        number = ctypes.c_int()
        found = self.state().is_mapped and not self.call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}" if found else ""

    def has_other_context(self) -> bool:
        """Return True if a context that is not the primary one of its device is current here.

        Where the primary one is active it is retained and released at once, which counts up and
        down and creates nothing: no other call tells which handle it has.
        """
        state = self.state()
        if state.current == NOWHERE:
            return False
        if state.current not in state.active:
            return True
        import ctypes

        current, primary = self.current_context(), ctypes.c_void_p()
        if not current:
            return False
        if self.call("cuDevicePrimaryCtxRetain", ctypes.byref(primary), state.current):
            return False
        self.call("cuDevicePrimaryCtxRelease_v2", state.current)
        return current != primary.value

    def current_context(self) -> int:
        """Return the handle of the context that is current in this thread, 0 for none."""
        import ctypes

        current = ctypes.c_void_p()
        failed = self.call("cuCtxGetCurrent", ctypes.byref(current))
        return 0 if failed else current.value or 0

    def call(self, name: str, *arguments: object) -> int:
        """Call a function of the driver that is mapped and return its status.

        A function that this driver does not have answers CUDA_ERROR_NOT_FOUND (500).
        """
        if (function := self._functions.get(name)) is None:
            import _ctypes
            import ctypes

            try:
                address = _ctypes.dlsym(self._handle, name)
            except own_errors(OSError):
                return 500
            # By address: a CDLL object would be one more call for those who patch ctypes.
            function = self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_int)(address)
        return int(function(*arguments))

    def _find(self) -> bool:
        """Look for libcuda among the libraries that are new since the last look."""
        if not self.may_ask or not any(
            os.path.basename(name).startswith(_FILE) for name in self._news.names()
        ):
            return False
        try:
            import _ctypes
            import ctypes  # noqa: F401  # the functions of the driver are called with it

            self._handle = _ctypes.dlopen(SONAME, os.RTLD_NOLOAD | os.RTLD_NOW)
        except own_errors(ImportError, OSError):
            return False
        self._found_in = os.getpid()
        return True
