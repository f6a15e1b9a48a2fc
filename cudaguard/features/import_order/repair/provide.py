"""Modules that bring the libraries which an extension is about to need."""

from __future__ import annotations

from cudaguard.core import messages
from cudaguard.core.prerequisites import import_first, is_installed
from cudaguard.core.request import Done, Refused, WouldDo
from cudaguard.features.import_order import messages as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.request import Outcome, Request


def provide(request: Request, needed: tuple[str, ...]) -> Iterator[Outcome]:
    """Import the module that has the libraries which an extension names.

    Args:
        request: For a rule whose first watched module has them.
        needed: The libraries.
    """
    rule, provider = request.rule, request.rule.watch[0]
    if not request.permit.acts:
        for library in needed if is_installed(provider) else ():
            finding = wording.not_provided(rule, request.name, library, request.where)
            yield WouldDo(finding, about=library)
        return
    outcome = import_first(provider, rule.id)
    if outcome.state == "imported":
        yield Done(provider, messages.imported_first(request.name))
    elif outcome.error is not None:
        finding = messages.prerequisite_failed(rule.id, provider, request.name, outcome.error)
        yield Refused(finding, cause=outcome.error)
