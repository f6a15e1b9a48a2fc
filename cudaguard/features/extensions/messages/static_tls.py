"""The wording of static TLS: a library that the loader has no room for."""

from __future__ import annotations

from cudaguard.core.messages import and_more, listed
from cudaguard.files import os
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NO_ROOM = "CG821"
_MOST = 3
_TUNABLE = "GLIBC_TUNABLES=glibc.rtld.optional_static_tls"
_LEAST = 4096  # bytes, so that the next library finds room as well


def no_room(victim: str, wanted: int, users: Sequence[tuple[int, str]], where: str) -> Finding:
    """A library was refused, since others had taken all static TLS.

    Args:
        victim: Its file, or its name.
        wanted: Bytes that it wants; 0 if that is not known.
        users: Pairs of (bytes, file) of those that have some, the largest first.
        where: ``file:line`` that asked for it; may be empty.
    """
    name = os.path.basename(victim)
    taken = [f"{file}: {size} bytes of static TLS" for size, file in users[:_MOST]]
    largest = listed([os.path.basename(file) for _, file in users[:_MOST]]) if users else "others"
    return Finding(
        NO_ROOM,
        f"{name} was not loaded: {largest} took the room for thread-local variables.",
        severity="error",
        evidence=(
            *((f"loaded at {where}",) if where else ()),
            *((f"{victim}: needs {wanted} bytes of static TLS",) if wanted else ()),
            *taken,
            *and_more(len(users) - _MOST, "libraries"),
        ),
        consequence="packages that need it cannot be imported in this process.",
        remedy=f"import the package that contains {name} first, or start Python with more room "
        "(glibc 2.32 or later)",
        command=f"{_TUNABLE}={max(_LEAST, 2 * wanted)} python ...",
        links=("https://github.com/dmlc/xgboost/issues/8488",),
    )
