"""Calls that belong before an import, and are reported if they come too late.

The call is made as ever. Only the first one counts: what a library has set up by then it keeps.
"""

from __future__ import annotations

import sys
from types import ModuleType

from cudaguard.core.caller import describe, frame_outside_of
from cudaguard.core.patterns import actions_of, texts_of
from cudaguard.core.request import WouldDo
from cudaguard.features.import_order import messages as wording
from cudaguard.features.import_order.repair import first_call
from cudaguard.files import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cudaguard.core.request import Request
    from cudaguard.features.import_order.repair.first_call import Look


def watch(request: Request) -> None:
    """Have the calls that a rule names looked at, where they are there."""
    for action in actions_of(request.rule, "check_call"):
        if _may_share(action.get("sharing")):
            first_call.put(request, action["check_call"], _teller(request, action))


def _teller(request: Request, action: Mapping[str, Any]) -> Look:
    def look(_: tuple[Any, ...], __: Mapping[str, Any]) -> bool:
        _tell(request, action)
        return True

    return look


def _may_share(pattern: str | None) -> bool:
    """Return True if another package has files of the names of those that a pattern finds.

    True as well for a call that is looked at in any case.
    """
    if not pattern:
        return True
    from cudaguard.system.preload import all_installed

    own = all_installed(pattern)
    names = {os.path.basename(file) for file in own}
    others = all_installed(f"*.libs/{os.path.basename(pattern)}") if own else ()
    return any(os.path.basename(file) in names and file not in own for file in others)


def _tell(request: Request, action: Mapping[str, Any]) -> None:
    """Tell of a call, if one of the modules that it belongs before is there."""
    before = [one for one in texts_of(action["before"]) if one in sys.modules]
    pattern = action.get("sharing")
    taken = _taken(pattern) if before and pattern else []
    if before and (taken or not pattern):
        frame = frame_outside_of(request.name.partition(".")[0])
        call = f"{request.name}.{action['check_call']}"
        users = _users_of(before[0])
        finding = wording.called_too_late(request.rule, call, before, describe(frame), users, taken)
        request.tell(WouldDo(finding), frame)


def _taken(pattern: str) -> list[str]:
    """Return the files in the process that have the names of other files, which a pattern finds."""
    from cudaguard.elf.mapped import mapped_files
    from cudaguard.system.preload import installed

    own = {os.path.basename(file): os.path.realpath(file) for file in installed(pattern)}
    return [file for file in mapped_files() if own.get(os.path.basename(file), file) != file]


def _users_of(module: str) -> list[str]:
    """Return the modules outside a package that have it, or a part of it, as a variable."""
    package = module.partition(".")[0]
    found = []
    for name, one in list(sys.modules.items()):
        if type(one) is ModuleType and name.partition(".")[0] != package:
            for value in list(vars(one).values()):
                if type(value) is ModuleType and f"{value.__name__}.".startswith(f"{module}."):
                    found.append(name)
                    break
    return found
