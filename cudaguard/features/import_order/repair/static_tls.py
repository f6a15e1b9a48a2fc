"""Libraries that want static TLS, opened while there is room: before a module that takes it.

Only those of packages that the program imports in the lines that follow: there they come earlier,
and nothing comes that would not.
"""

from __future__ import annotations

from cudaguard.core import messages
from cudaguard.core.foresight import coming
from cudaguard.core.patterns import values_of
from cudaguard.core.request import Done
from cudaguard.files import LARGEST, os, ours, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.request import Outcome, Request

_BUNDLED = ".libs"  # where auditwheel puts what a wheel brings along


def preload_static_tls(request: Request) -> Iterator[Outcome]:
    """Open the bundled libraries of packages that are imported next."""
    if not request.permit.acts:  # nothing is known to fail yet
        return
    from cudaguard.elf.static_tls import static_tls_of
    from cudaguard.system.preload import all_installed, not_mapped, open_all

    for pattern in values_of(request.rule, "preload_static_tls"):
        found = {file: _modules_of(file) for file in all_installed(f"*{_BUNDLED}/{pattern}")}
        next_ones = coming(frozenset().union(*found.values()))
        wanted = [file for file, modules in found.items() if next_ones & modules]
        opened, _ = open_all(not_mapped(file for file in wanted if static_tls_of(file)))
        for file in opened:
            yield Done(file, messages.loaded_before(request.name))


def _modules_of(file: str) -> frozenset[str]:
    """Return the packages of the distribution that a library was bundled with."""
    folder = os.path.dirname(file)
    place, name = os.path.split(folder[: -len(_BUNDLED)])
    try:
        infos = [one for one in os.listdir(place) if one.endswith(".dist-info")]
        (info,) = [one for one in infos if one.partition("-")[0].lower() == name.lower()]
        record = read_bytes(f"{place}/{info}/RECORD", LARGEST).decode("utf-8", "replace")
    except ours(OSError, ValueError):
        return frozenset((name,))
    first = (line.partition("/__init__.py,")[0] for line in record.splitlines())
    return frozenset(one for one in first if one.isidentifier())
