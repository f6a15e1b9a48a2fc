"""The CUDA driver as this process has it now: whether it is mapped, initialized, has contexts.

Nothing is initialized, loaded or retained by asking. Before ``cuInit`` every call but a few
answers CUDA_ERROR_NOT_INITIALIZED, and that is the answer. The runtime (cudart) is never asked:
most of its queries initialize the driver.

Source: CUDA driver API reference, sections "Initialization", "Device Management", "Primary Context
Management" and "Context Management".
"""

from __future__ import annotations

import ctypes

from cudaguard.elf.loaded import ENTRY, Library, Memory, entries, first_entry
from cudaguard.files.calls import os
from cudaguard.files.foreign import ours
from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SONAME = "libcuda.so.1"
SUCCESS, NOT_INITIALIZED = 0, 3
NOWHERE = -1
_MAJOR, _MINOR = 75, 76  # CUdevice_attribute: compute capability
_FILE = "libcuda.so"
_NEXT = 24  # where in an entry of the loader's list the address of the next one lies


class DriverState(Record):
    """What the driver of this process says of itself.

    Args:
        is_mapped: True if libcuda is in the process.
        is_initialized: True if ``cuInit`` was called.
        is_forked: True if the parent of this process called it: CUDA cannot be used here.
        error: What ``cuDeviceGetCount`` answers, if neither success nor that it is not initialized.
        devices: How many devices are visible, once it is initialized.
        active: Ordinals of the devices whose primary context is active.
        current: Device of the context that is current in the calling thread, -1 for none.
    """

    __slots__ = (
        "active",
        "current",
        "devices",
        "error",
        "is_forked",
        "is_initialized",
        "is_mapped",
    )
    is_mapped: bool
    is_initialized: bool
    is_forked: bool
    error: int
    devices: int
    active: tuple[int, ...]
    current: int

    def __init__(
        self,
        is_mapped: bool = False,
        is_initialized: bool = False,
        is_forked: bool = False,
        error: int = SUCCESS,
        devices: int = 0,
        active: tuple[int, ...] = (),
        current: int = NOWHERE,
    ) -> None:
        self._fill(
            is_mapped=is_mapped,
            is_initialized=is_initialized,
            is_forked=is_forked,
            error=error,
            devices=devices,
            active=active,
            current=current,
        )


ABSENT, LOADED = DriverState(), DriverState(is_mapped=True)
FORKED = DriverState(is_mapped=True, is_forked=True)


class Driver:
    """Asks the driver, once somebody else has brought it into the process."""

    def __init__(self) -> None:
        self._news = LoaderNews()
        self._functions: dict[str, Any] = {}
        self._handle = 0
        # Had nobody initialized it when this process was forked, and was no other thread there?
        self.may_be_asked_in_child = False
        self._found_in = 0  # the process in which libcuda was found
        self._initialized_in = 0  # the process in which an initialized driver was last seen

    def state(self) -> DriverState:
        """Return what the driver says now.

        In a forked process it is asked only where that is known to be safe: a thread of the parent
        may have been inside it, and its locks are held for ever then. What was known before the
        fork is the answer.
        """
        if not self._handle and not self._find():
            return ABSENT
        if self._found_in != os.getpid():
            if not self.may_be_asked_in_child:
                return FORKED if self._initialized_in else LOADED
            self._found_in, self.may_be_asked_in_child = os.getpid(), False
        number = ctypes.c_int()
        status = self.call("cuDeviceGetCount", ctypes.byref(number))
        if status == NOT_INITIALIZED:
            return LOADED
        if status:
            return DriverState(is_mapped=True, error=status)
        self._initialized_in = os.getpid()
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

    def load(self) -> str:
        """Load the driver library, as the program has asked for CUDA; return its path.

        Nothing is initialized by that.

        Raises:
            OSError: There is none, or it cannot be loaded.
        """
        import _ctypes

        if not self._handle:
            self._handle = _ctypes.dlopen(SONAME, os.RTLD_NOW)
            self._found_in = os.getpid()
        try:
            with Memory() as memory:
                # The handle is the address of the library's entry in the loader's list.
                _, _, name, _ = next(entries(memory, self._handle))
                return os.path.realpath(os.fsdecode(memory.text(name)))
        except ours(OSError):  # no /proc: it is loaded all the same
            return SONAME

    def version(self) -> int:
        """Return the newest CUDA version the driver supports, 12040 for 12.4; 0 if not mapped."""
        number = ctypes.c_int()
        if not self._handle and not self._find():
            return 0
        return 0 if self.call("cuDriverGetVersion", ctypes.byref(number)) else number.value

    def capabilities(self) -> tuple[tuple[int, int], ...]:
        """Return the compute capability of each visible device; nothing before ``cuInit``."""
        found = []
        major, minor = ctypes.c_int(), ctypes.c_int()
        for device in range(self.state().devices):
            if self.call("cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, device) or self.call(
                "cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, device
            ):
                return ()
            found.append((major.value, minor.value))
        return tuple(found)

    def has_foreign_context(self) -> bool:
        """Return True if a context that is not the primary one of its device is current here.

        Where the primary one is active it is retained and released at once, which counts up and
        down and creates nothing: no other call tells which handle it has.
        """
        state = self.state()
        if state.current == NOWHERE:
            return False
        if state.current not in state.active:
            return True
        current, primary = self.current_context(), ctypes.c_void_p()
        if not current:
            return False
        if self.call("cuDevicePrimaryCtxRetain", ctypes.byref(primary), state.current):
            return False
        self.call("cuDevicePrimaryCtxRelease_v2", state.current)
        return current != primary.value

    def current_context(self) -> int:
        """Return the handle of the context that is current in this thread, 0 for none."""
        current = ctypes.c_void_p()
        failed = self.call("cuCtxGetCurrent", ctypes.byref(current))
        return 0 if failed else current.value or 0

    def call(self, name: str, *arguments: object) -> int:
        """Call a function of the driver that is mapped and return its status.

        A function that this driver does not have answers CUDA_ERROR_NOT_FOUND (500).
        """
        function = self._functions.get(name)
        if function is None:
            import _ctypes

            try:
                address = _ctypes.dlsym(self._handle, name)
            except ours(OSError):
                return 500
            # By address: a CDLL object would be one more call for those who patch ctypes.
            function = self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_int)(address)
        return int(function(*arguments))

    def _find(self) -> bool:
        """Look for libcuda among the libraries that are new since the last look."""
        if not any(os.path.basename(name).startswith(_FILE) for name in self._news.names()):
            return False
        import _ctypes

        try:
            self._handle = _ctypes.dlopen(SONAME, os.RTLD_NOLOAD | os.RTLD_NOW)
        except ours(OSError):
            return False
        self._found_in = os.getpid()
        return True


class LoaderList:
    """What the dynamic loader has mapped; asked whether there is more by one system call.

    The end of its list is remembered as it was. A library may be unloaded at any time, and its
    entry be freed; so the entry is read by ``process_vm_readv``, where an address that is gone is
    an error and not a crash, and nothing is held that would keep a library from being unloaded.

    Raises:
        AttributeError: The C library has no such function.
    """

    def __init__(self) -> None:
        self._read = ctypes.pythonapi["process_vm_readv"]
        self._read.restype = ctypes.c_ssize_t
        self._buffer = ctypes.create_string_buffer(ENTRY)
        self._here = (ctypes.c_size_t * 2)(ctypes.addressof(self._buffer), ENTRY)
        self._there = (ctypes.c_size_t * 2)(0, ENTRY)
        self._last = b""
        self._libraries: list[Library] = []

    def libraries(self) -> list[Library]:
        """Return the libraries, their paths as the loader's: the list of the last call, extended.

        A new list where the loader's has been changed elsewhere than at its end, or cannot be read
        just now; then it is empty, and the next one is whole.
        """
        seen = self._peek() if self._last else b""
        if seen and seen == self._last:
            return self._libraries
        is_longer = bool(seen) and seen[:_NEXT] == self._last[:_NEXT]
        try:
            with Memory() as memory:
                start = int.from_bytes(seen[_NEXT:], "little") if is_longer else first_entry()
                found, last = [], (start, 0, 0, 0)
                for last in entries(memory, start):
                    _, base, name, dynamic = last
                    path = os.fsdecode(memory.text(name)) if name else ""
                    found.append(Library(path, base, dynamic))
        except ours(OSError):  # changed while it was read
            self._last, self._libraries = b"", []
            return self._libraries
        # As it was read, without a next one: another thread may have mapped something meanwhile.
        self._there[0] = last[0]
        self._last = b"".join(word.to_bytes(8, "little") for word in (*last[1:], 0))
        if is_longer:
            self._libraries += found
        else:
            self._libraries = found
        return self._libraries

    def _peek(self) -> bytes:
        done = self._read(
            ctypes.c_int(os.getpid()),
            ctypes.byref(self._here),
            ctypes.c_ulong(1),
            ctypes.byref(self._there),
            ctypes.c_ulong(1),
            ctypes.c_ulong(0),
        )
        if done == ENTRY:
            return self._buffer.raw
        try:  # the entry is gone, or this container forbids the call
            with Memory() as memory:
                return memory.read(self._there[0], ENTRY)
        except ours(OSError):
            return b""


class LoaderNews:
    """Tells one who asks now and then what the dynamic loader has mapped since the last time.

    Those who ask share the list: it is read once, whoever comes first.
    """

    _list: LoaderList | None = None

    def __init__(self) -> None:
        if LoaderNews._list is None:
            LoaderNews._list = LoaderList()
        self._all = LoaderNews._list
        self._seen: list[Library] = []
        self._count = 0
        self.is_whole = False  # was the last answer all that is mapped?

    def names(self) -> list[str]:
        """Return the names of the libraries that were mapped since the last call."""
        return [library.path for library in self.libraries()]

    def libraries(self) -> list[Library]:
        """Return the libraries that were mapped since the last call, their paths as the loader's.

        Where the list has been changed elsewhere than at its end, it is all of them again.
        """
        libraries = self._all.libraries()
        self.is_whole = libraries is not self._seen
        if self.is_whole:
            self._seen, self._count = libraries, 0
        new = libraries[self._count :]
        self._count += len(new)
        return new
