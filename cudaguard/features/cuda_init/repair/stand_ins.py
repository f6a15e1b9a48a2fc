"""What is put in place before an import: defaults of variables, another module for this one."""

from __future__ import annotations

import sys

from cudaguard.core import messages
from cudaguard.core.foresight import coming
from cudaguard.core.patterns import actions_of, values_of
from cudaguard.core.prerequisites import import_first
from cudaguard.core.request import Done, WouldDo
from cudaguard.features.cuda_init import messages as wording
from cudaguard.files import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.request import Outcome, Request


def set_env(request: Request) -> Iterator[Outcome]:
    """Set the variables that a rule wants set before a module, where the program has not."""
    for action in actions_of(request.rule, "set_env"):
        if _is_imported_too(action.get("beside", "")):
            name, value = action["set_env"], action["value"]
            if name in os.environ:
                continue
            if request.permit.acts:
                os.environ[name] = value
                yield Done(f"{name}={value}", wording.default_set(request.name))
            else:
                yield WouldDo(
                    wording.default_missing(request.rule, name, value, request.name, request.where)
                )


def _is_imported_too(other: str) -> bool:
    """Return True if the program has imported another module as well, or is about to."""
    return not other or other in sys.modules or bool(coming(frozenset((other,))))


def replace_module(request: Request) -> Iterator[Outcome]:
    """Publish another module under the name of the one that is about to be imported."""
    name = request.name
    if not request.permit.acts or name in sys.modules or name not in request.rule.watch:
        return
    for other in values_of(request.rule, "replace_module"):
        outcome = import_first(other, request.rule.id)
        module = sys.modules.get(other)
        if outcome.error is not None:
            yield WouldDo(messages.prerequisite_failed(request.rule.id, other, name, outcome.error))
        elif module is not None:
            # The loader finds it there and runs nothing.
            sys.modules[name] = module
            yield Done(name, wording.replaced_by(other))
            return
