"""The setting by which torch copies results that are held: by rule, or asked for by a call."""

from __future__ import annotations

import sys

from cudaguard.core.caller import frame_outside_of
from cudaguard.core.request import Done, Refused
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
    from collections.abc import Iterator
    from typing import Any

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.request import Outcome, Request

PLACE = f"{MODULE}.{SETTING}: 'user_visible' for all threads of the process"
_VERB = "copy_held_outputs"


def put_up(request: Request) -> Iterator[Outcome]:
    """Set it because a rule says so."""
    config = sys.modules[request.name]
    if not request.permit.acts:
        return
    if not is_known(config):
        finding = wording.no_generation_cloning(request.rule.id, SETTING, _torch_version())
        yield Refused(finding)
    elif not is_on(config) and request.put(PLACE, config, lambda *_: GenerationCloning(config)):
        yield Done(SETTING, wording.GENERATION_CLONING, stays=False)


def put_up_on_request(core: Dispatch, config: Any) -> bool:
    """Set it because the program asks for it; `cudaguard.uninstall` puts it back.

    Args:
        core: Is told.
        config: ``torch._inductor.config``, imported.

    Returns:
        False where this torch has no such setting.
    """
    if not is_known(config):
        return False
    is_ours = PLACE in core.replacements.places  # by a rule, which may be switched off again
    is_wanted = is_ours or not is_on(config)
    if is_wanted and core.replacements.put(
        PLACE, None, config, lambda *_: GenerationCloning(config)
    ):
        frame, how = frame_outside_of("torch"), wording.GENERATION_CLONING
        core.reporter.repaired("", _VERB, SETTING, how, stays=False, frame=frame)
    return True


def _torch_version() -> str:
    return str(getattr(sys.modules.get("torch"), "__version__", ""))
