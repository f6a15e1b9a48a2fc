"""The setting by which torch copies results that are held: by rule, or asked for by a call."""

from __future__ import annotations

import sys

from cudaguard.core.caller import frame_outside_of
from cudaguard.core.repair import REPAIRING
from cudaguard.errors import GraphWarning
from cudaguard.features.cuda_graphs import messages as wording
from cudaguard.features.cuda_graphs.repair.generations import (
    MODULE,
    SETTING,
    GenerationCloning,
    is_known,
    is_on,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.repair import Engine
    from cudaguard.core.replace import Replaced
    from cudaguard.model import Rule

PLACE = f"{MODULE}.{SETTING}: 'user_visible' for all threads of the process"


def put_up(engine: Engine, rule: Rule, module: str) -> None:
    """Set it because a rule says so.

    Args:
        engine: Knows the mode, and is told.
        rule: The rule.
        module: The module that it watches, imported.
    """
    config = sys.modules[module]
    if engine.mode not in REPAIRING:
        return
    if not is_known(config):
        finding = wording.no_generation_cloning(rule.id, SETTING, _torch_version())
        engine.tell(finding, GraphWarning, frame=frame_outside_of("torch"))
        return
    if not is_on(config):
        engine.replace(PLACE, GenerationCloning(config))
        engine.journal.note("repair", f"{rule.id} {SETTING}")
        engine.log(wording.generation_cloning(rule.id))


def put_up_on_request(engine: Engine, requested: dict[str, Replaced], config: Any) -> bool:
    """Set it because the program asks for it.

    Args:
        engine: Is told.
        requested: Takes what is put back by `cudaguard.uninstall`, and by nothing else.
        config: ``torch._inductor.config``, imported.

    Returns:
        False where this torch has no such setting.
    """
    if not is_known(config):
        return False
    if PLACE in engine.replaced:  # by a rule, which may be switched off again
        requested[PLACE] = engine.replaced.pop(PLACE)
    if not is_on(config):
        requested[PLACE] = GenerationCloning(config)
        engine.journal.note("repair", SETTING)
        engine.log(wording.generation_cloning("graph_safe(strategy='generation')"))
    return True


def _torch_version() -> str:
    return str(getattr(sys.modules.get("torch"), "__version__", ""))
