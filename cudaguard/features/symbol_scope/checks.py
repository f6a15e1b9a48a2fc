"""CG915: what LD_PRELOAD puts before everything else."""

from __future__ import annotations

from cudaguard.core.checks import Check
from cudaguard.elf.reader import exported_runtime
from cudaguard.elf.search_path import header_of, machine_of, own_machine
from cudaguard.features.symbol_scope.messages import checks as wording
from cudaguard.files import os
from cudaguard.system.site import Skipped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.system.site import Result, Site


def check_preloaded(site: Site) -> Result:
    """Look at the files that LD_PRELOAD names; bare names, and $LIB, are left to the loader."""
    named = site.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    if not named:
        raise Skipped("LD_PRELOAD is not set")
    findings = []
    for path in [path for path in dict.fromkeys(named) if os.sep in path and "$" not in path]:
        if not os.path.exists(path):
            findings.append(wording.missing(path, named))
        elif not os.path.isfile(path) or not _is_for_this_machine(path):
            findings.append(wording.unfit(path, named))
        elif exported_runtime(path):
            findings.append(wording.brings_runtime(path, len(exported_runtime(path)), named))
    return findings, f"libraries: {len(named)}"


def _is_for_this_machine(path: str) -> bool:
    try:
        header = header_of(path)
    except (OSError, ValueError):
        return False
    return header[:4] == b"\x7fELF" and machine_of(header) == own_machine()


PRELOADED = Check(
    wording.PRELOADED,
    "libraries in LD_PRELOAD",
    "A preloaded library comes before all others in every program: its symbols win. The loader "
    "ignores files that are missing or built for another machine, and says so at every start.",
    check_preloaded,
)
