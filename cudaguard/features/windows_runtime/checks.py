"""CG920: C++ runtimes of Windows, older than what is installed beside them needs."""

from __future__ import annotations

import os

from cudaguard.core.checks import Check
from cudaguard.features.windows_runtime.facts import RuntimeCopy
from cudaguard.features.windows_runtime.findings import older_beside
from cudaguard.system.packages import Skipped, listed_files
from cudaguard.system.pe import RUNTIME, is_too_old, read_pe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.system.packages import Result, Site


def check(site: Site) -> Result:
    """Compare the runtimes of installed wheels, of this machine or of an unpacked environment."""
    old: list[RuntimeCopy] = []
    clients, count = set[str](), 0
    for dist in site.installed.found:
        for path, *_ in listed_files(dist):
            if path.lower().endswith((".dll", ".pyd")):
                name = os.path.normpath(os.path.join(dist.folder, path))
                file, who, count = read_pe(name), f"{dist.name} {dist.version}", count + 1
                if os.path.basename(name).lower() == RUNTIME and is_too_old(file.version):
                    old.append(RuntimeCopy(file.version, name, who))
                if file.locks_without_init and not name.endswith("140.dll"):  # of the runtime
                    clients.add(who)
    if not count:
        raise Skipped("nothing that is installed has libraries for Windows")
    findings = [older_beside(copy, sorted(clients)) for copy in old if clients]
    return findings, f"libraries for Windows: {count}"


RUNTIMES = Check(
    "CG920",
    "C++ runtimes of Windows",
    "The msvcp140.dll of wheels for Windows is compared with what other wheels were linked with.",
    check,
)
