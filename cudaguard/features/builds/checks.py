"""CG908: the locks that earlier builds have left."""

from __future__ import annotations

import os
from glob import escape, glob

from cudaguard.core.checks import Check
from cudaguard.features.builds import findings as wording
from cudaguard.features.builds.locks import look
from cudaguard.system.packages import Skipped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding
    from cudaguard.system.packages import Result, Site


def check_locks(site: Site) -> Result:
    """Look through torch's cache of JIT extensions."""
    root = site.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(
        site.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "torch_extensions"
    )
    if not os.path.isdir(root):
        raise Skipped(f"there is no {root}")
    try:
        os.listdir(root)  # one that cannot be read is no empty one
    except OSError as error:
        raise Skipped(f"{root} cannot be read: {error.strerror}") from None
    levels = ("*", os.path.join("*", "*"))
    locks = [p for level in levels for p in glob(os.path.join(escape(root), level, "lock"))]
    findings: list[Finding] = []
    for path in locks:
        lock = look(path)
        if lock is not None and lock.state == "stale":
            found = wording.stale_lock(path, lock.age, is_removed=False)
            findings.append(found.replace(id=wording.CACHE))
        elif lock is not None and lock.state == "unknown":
            findings.append(wording.old_lock(path, lock))
    return findings, f"{root}: locks {len(locks)}"


LOCKS = Check(
    "CG908",
    "locks of JIT builds",
    "torch waits without a limit for the lock of a build that was killed "
    "(TORCH_EXTENSIONS_DIR, or ~/.cache/torch_extensions).",
    check_locks,
)
