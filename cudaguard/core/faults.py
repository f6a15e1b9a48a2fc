"""``faulthandler``, which tells where a process was when it died, writes to a file of ours.

Under ``cudaguard run`` only. The program's standard error stays the program's; and where it, or
its user, has switched ``faulthandler`` on, that stays as it is.
"""

from __future__ import annotations

from cudaguard.files import open_to_write, os, ours

# Far above what programs open: the number of a closed descriptor is soon used for another file,
# and programs that become daemons close them all.
_HIGHEST = 1000


def write_faults(path: str, dump_signal: int = 0) -> None:
    """Have the tracebacks of all threads written to a file when the process dies of a fault.

    Args:
        path: The file; written to at its end, by forked processes too.
        dump_signal: A signal upon which they are written as well, and the process goes on.

    Raises:
        OSError: The file cannot be opened.
    """
    import faulthandler

    is_on = faulthandler.is_enabled()
    if is_on and not dump_signal:
        return
    low = open_to_write(path, os.O_APPEND | os.O_CREAT)
    try:
        file = os.dup2(low, _free_number(), inheritable=False)
    finally:
        os.close(low)
    if not is_on:
        faulthandler.enable(file=file, all_threads=True)
    if dump_signal and hasattr(faulthandler, "register"):
        faulthandler.register(dump_signal, file=file, all_threads=True)


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
