"""Import the prerequisites of a watched module, in order."""

from __future__ import annotations

import sys
from _thread import _local

from cudaguard.files.foreign import is_of_signal_handler
from cudaguard.model import Record

# `names`: what this thread is importing as a prerequisite. An extension is in sys.modules only
# after it is mapped; until then this alone tells that it has been asked for.
_under_way = _local()


class Outcome(Record):
    """What became of one prerequisite.

    Args:
        module: The module that had to come first.
        rule: The rule that asked for it.
        state: ``imported``, ``present`` (already in ``sys.modules``, finished or not),
            ``absent`` (not installed) or ``failed``.
        error: What it raised, for ``failed``.
    """

    __slots__ = ("error", "module", "rule", "state")
    module: str
    rule: str
    state: str
    error: BaseException | None

    def __init__(
        self, module: str, rule: str, state: str, error: BaseException | None = None
    ) -> None:
        self._fill(module=module, rule=rule, state=state, error=error)


def import_first(module: str, rule: str) -> Outcome:
    """Import one prerequisite unless it is there.

    A module that another thread is still initialising is skipped as well: waiting for it is
    how ``_DeadlockError`` arises. ``KeyboardInterrupt`` and the like pass, and so does what the
    program's own handlers of signals raise.
    """
    names: set[str] = _under_way.__dict__.setdefault("names", set())
    if module in sys.modules or module in names:
        return Outcome(module, rule, "present")
    names.add(module)
    try:
        __import__(module)  # eager also where lazy imports are switched on
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module or module.startswith(missing + "."):
            return Outcome(module, rule, "absent")
        return Outcome(module, rule, "failed", error)  # one of its own dependencies is missing
    except (Exception, SystemExit) as error:
        if is_of_signal_handler(error):
            raise
        return Outcome(module, rule, "failed", error)
    finally:
        names.discard(module)
    return Outcome(module, rule, "imported")


def is_installed(module: str) -> bool:
    """Could the top-level package of `module` be imported? Imports nothing."""
    import importlib.util

    root = module.partition(".")[0]
    if root in sys.modules:
        return sys.modules[root] is not None
    try:
        return importlib.util.find_spec(root) is not None
    except Exception:  # a foreign finder may raise anything
        return False
