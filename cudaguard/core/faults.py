"""``faulthandler``, which tells where a process was when it died, writes to a file of ours.

Under ``cudaguard run`` only. The program's standard error stays the program's; and where it, or
its user, has switched ``faulthandler`` on, that stays as it is.
"""

from __future__ import annotations

from _signal import SIG_DFL, getsignal  # type: ignore[import-not-found]  # light: `signal` is not

from cudaguard.files import open_to_write, os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Far above what programs open: the number of a closed descriptor is soon used for another file,
# and programs that become daemons close them all.
_HIGHEST = 1000


def write_faults(path: str, dump_signals: Iterable[int] = ()) -> None:
    """Have the tracebacks of all threads written to a file when the process dies of a fault.

    Args:
        path: The file; written to at its end, by forked processes too.
        dump_signals: Signals upon which they are written as well, and the process goes on. One
            that is ignored, or has a handler, is left as it is.

    Raises:
        OSError: The file cannot be opened.
    """
    import faulthandler

    is_on = faulthandler.is_enabled()
    free = [number for number in dump_signals if getsignal(number) == SIG_DFL]
    if is_on and not free:
        return
    low = open_to_write(path, os.O_APPEND | os.O_CREAT)
    try:
        file = os.dup2(low, _free_number(), inheritable=False)
    finally:
        os.close(low)
    if not is_on:
        faulthandler.enable(file=file, all_threads=True)
    for number in free if hasattr(faulthandler, "register") else ():
        faulthandler.register(number, file=file, all_threads=True)


def _free_number() -> int:
    """Return the number of a descriptor that is not in use."""
    most = os.sysconf("SC_OPEN_MAX")
    number = (min(most, _HIGHEST) if most > 0 else _HIGHEST) - 1
    while True:
        try:
            os.fstat(number)
        except ours(OSError):
            return number
        number -= 1
