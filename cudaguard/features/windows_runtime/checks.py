"""CG920: DLLs of which wheels have copies, some too old for what is installed beside them."""

from __future__ import annotations

import os

from cudaguard.core.checks import Check, Skipped
from cudaguard.features.windows_runtime import findings as wording
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.packages import listed_files
from cudaguard.system.pe import MSVCP, functions_lacking, is_too_old, read_pe

if TYPE_CHECKING:
    from cudaguard.core.checks import Result
    from cudaguard.system.packages import Site
    from cudaguard.system.pe import PeFile


def check_dlls(site: Site) -> Result:
    """Compare the DLLs of installed wheels, of this machine or of an unpacked environment."""
    old: list[wording.RuntimeCopy] = []
    users: list[tuple[str, str, PeFile]] = []
    copies: dict[tuple[str, str], list[tuple[str, str]]] = {}  # name, machine -> file, distribution
    clients = set[str]()
    for dist in site.installed.found:
        listed = dist.record.lower()
        for path, *_ in listed_files(dist) if ".dll" in listed or ".pyd" in listed else ():
            if path.lower().endswith((".dll", ".pyd")):
                name = os.path.normpath(os.path.join(dist.folder, path))
                file, base = read_pe(name), os.path.basename(name).lower()
                who = f"{dist.name} {dist.version}"
                if base == MSVCP and is_too_old(file.version):
                    old.append(wording.RuntimeCopy(file.version, name, who))
                if file.locks_without_init and not name.endswith("140.dll"):  # of the runtime
                    clients.add(who)
                users.append((name, who, file))
                copies.setdefault((base, file.machine), []).append((name, who))
    if not users:
        raise Skipped("nothing that is installed has libraries for Windows")
    findings = [wording.older_beside(copy, sorted(clients)) for copy in old if clients]
    reported = set()
    for path, user, file in users:
        # Python has brought the smaller runtime.
        for needed in (needed for needed in file.imports if not needed.startswith("vcruntime140")):
            same_name = copies.get((needed, file.machine), ())
            for copy, owner in same_name if len(same_name) > 1 else ():
                is_new = owner != user and (owner, user) not in reported
                lacking = functions_lacking(path, copy) if is_new else []
                if lacking and any(not functions_lacking(path, other) for other, _ in same_name):
                    reported.add((owner, user))
                    findings.append(wording.lacking_beside(owner, copy, user, path, lacking[0]))
    return findings, f"libraries for Windows: {len(users)}"


WINDOWS_DLLS = Check(
    wording.DLL_COPIES,
    "Windows takes the first DLL of a name for all: each copy is compared with what others need.",
    check_dlls,
)
