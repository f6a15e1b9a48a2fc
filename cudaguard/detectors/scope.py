"""Has somebody put a copy of other people's symbols into the global scope?

Each family of symbols has a few names that tell (`cudaguard.rules.families`). Whenever a library
was loaded, their owners are compared with those of the last look; nothing else is read then.
"""

from __future__ import annotations

import os
import sys

from cudaguard.actions.scope import matches, names_library, packages_of
from cudaguard.errors import ImportOrderError, SymbolScopeWarning
from cudaguard.hook.caller import (
    caller_frame,
    describe,
    frame_outside,
    is_importing,
    module_of,
)
from cudaguard.probe.packages import Packages
from cudaguard.probe.symbols import GlobalScope
from cudaguard.repairs import REPAIRING
from cudaguard.report.hijack import Culprit, Hijack, Load, hijacked
from cudaguard.rules.families import FAMILIES, LEGITIMATE_OWNERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.repairs import Engine

CANARIES: tuple[tuple[str, str], ...] = tuple(
    (name, key) for key, family in FAMILIES.items() for name in family.canaries
)
_NAMES = tuple(name.encode() for name, _ in CANARIES)


class ScopeDetector:
    """Compares who owns the canary names with who owned them at the last look.

    The first look is taken when it is made: what is found then was there before the guard.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._scope = GlobalScope()
        self._addresses = [0] * len(_NAMES)
        self.look(None)

    def look(self, load: Load | None) -> None:
        """Look once, and tell of what has moved.

        Args:
            load: What has just been loaded; None where nobody knows what it may have been.

        Raises:
            ImportOrderError: in `strict`, from an import.
        """
        before, now = self._addresses, self._scope.addresses(_NAMES)
        if now == before:
            return
        self._addresses = now
        stolen: dict[str, list[tuple[str, str, str]]] = {}  # owner -> name, family, owner before
        for (name, family), was, is_ in zip(CANARIES, before, now):
            if is_ and is_ != was:
                owner = self._scope.owner(is_)
                if not self._is_known(owner, load):
                    stolen.setdefault(owner, []).append((name, family, self._scope.owner(was)))
        if stolen:
            self._tell(stolen, load)

    def _is_known(self, owner: str, load: Load | None) -> bool:
        """Is this owner legitimate, or in a rule's care?"""
        name = os.path.basename(owner)
        if not owner or matches(name, LEGITIMATE_OWNERS):
            return True  # the program itself has no name here
        if name in os.environ.get("LD_PRELOAD", "") or owner == os.path.realpath(sys.executable):
            return True
        package = Packages().of(owner)
        if load is None and not package:
            return True  # there from the start, and in no package: the environment's own affair
        registry = self._engine.registry
        caring = registry.scoping
        if self._engine.mode in REPAIRING:
            caring += registry.demoting
        # A rule knows more than we do: it acts and tells by itself, or is conditioned not to.
        return any(
            names_library(rule, owner)
            or (load is not None and names_library(rule, load.library))
            or package.lower() in packages_of(rule)
            for rule in {rule.id: rule for _, rule in caring}.values()
        )

    def _tell(self, stolen: dict[str, list[tuple[str, str, str]]], load: Load | None) -> None:
        engine = self._engine
        frame = caller_frame()
        hijacks = tuple(_hijack(owner, names) for owner, names in stolen.items())
        outside = frame_outside(frame)
        culprit = Culprit(module_of(frame), describe(frame), describe(outside))
        finding = hijacked(hijacks, load, culprit)
        if engine.tell(finding, SymbolScopeWarning, frame=frame) and engine.mode == "strict":
            if load is not None and is_importing():
                raise ImportOrderError(finding.what, name=load.extension, path=load.library)
            engine.deferred.append(finding.what)


def _hijack(owner: str, names: list[tuple[str, str, str]]) -> Hijack:
    keys = dict.fromkeys(family for _, family, _ in names)
    return Hijack(
        owner,
        Packages().of(owner),
        tuple((name, was) for name, _, was in names),
        tuple((key, FAMILIES[key].title, FAMILIES[key].danger) for key in keys),
    )
