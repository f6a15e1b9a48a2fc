"""The `lazy import` statement behind an import, and those that nothing has resolved yet.

A lazy import happens at its first use, which may be far from its statement. The object that
stands for the module until then refers to the code that has the statement.

Source: https://peps.python.org/pep-0810/
"""

from __future__ import annotations

import sys

from cudaguard.core.caller import describe
from cudaguard.files import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import CodeType, FrameType
    from typing import Any

    from cudaguard.model import Finding

_FIND = ("<frozen importlib._bootstrap>", "_find_and_load")  # what every import calls first
_SHOWN = ("<lazy_import '", "'>")  # how what stands for a module shows itself


def with_statement(finding: Finding) -> Finding:
    """Return a finding that names the `lazy import` statement as well as its first use.

    As it is, if no lazy import of this thread is being resolved.
    """
    try:
        name, statement, use = _being_resolved() or ("", "", "")
    except ours(Exception):  # the finding is worth telling without
        return finding
    if not statement:
        return finding
    line = f"`lazy import` of {name} at {statement}, first used at {use}"
    return finding.replace(evidence=(*finding.evidence, line))


def outlived(frame: FrameType | None, new: frozenset[str], roots: frozenset[str]) -> dict[str, str]:
    """Return what was imported lazily in a block and is not used yet.

    Args:
        frame: That of the code with the block. In its module every lazy import counts.
        new: Names in ``sys.lazy_modules`` since the block was entered.
        roots: Top-level packages that are watched, and count in every module.

    Returns:
        Names, and ``file:line`` of the statements.
    """
    found = {} if frame is None else dict(_lazy(frame.f_globals))
    elsewhere = {name for name in new - found.keys() if _root(name) in roots}
    if elsewhere:
        found.update((name, line) for name, line in _lazies(None) if name in elsewhere)
    return {name: line for name, line in found.items() if name in new and not _is_there(name)}


def _root(name: str) -> str:
    return name.partition(".")[0]


def _is_there(name: str) -> bool:
    """Return True for what first use imports no module for."""
    package, _, part = name.rpartition(".")
    return name in sys.modules or part in getattr(sys.modules.get(package), "__dict__", {})


def _being_resolved() -> tuple[str, str, str] | None:
    """Return name, statement and first use of the innermost lazy import under way."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        user = frame.f_back
        if (frame.f_code.co_filename, frame.f_code.co_name) == _FIND and _is_use(user):
            name = frame.f_locals["name"]
            for lazy, statement in _lazies(user):
                if lazy == name or lazy.startswith(f"{name}."):
                    return name, statement, describe(user)
        frame = user
    return None


def _is_use(frame: FrameType | None) -> bool:
    """Return True if a frame reads a variable or an attribute, and does not import or call."""
    if frame is None or frame.f_code.co_filename.startswith("<frozen importlib"):
        return False
    from opcode import opname

    return opname[frame.f_code.co_code[frame.f_lasti]].startswith("LOAD_")


def _lazies(frame: FrameType | None) -> Iterable[tuple[str, str]]:
    """Return what `_lazy` does: of the frame's own module first, then of all others."""
    if frame is not None:
        yield from _lazy(frame.f_globals)
    for module in list(sys.modules.values()):  # `module.name` is a first use, too
        variables = getattr(module, "__dict__", None)
        if type(variables) is dict:
            yield from _lazy(variables)


def _lazy(variables: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Return names and statements of what stands for a module, or for a part of one."""
    from types import LazyImportType  # type: ignore[attr-defined]  # 3.15

    for value in list(variables.values()):
        if type(value) is LazyImportType:
            # A part of a module is shown as ``module.name``, or as ``module...``.
            name = repr(value)[len(_SHOWN[0]) : -len(_SHOWN[1])].rstrip(".")
            yield name, _statement(value, name)


def _statement(lazy: object, name: str) -> str:
    """Return ``file:line`` of the statement that made it; empty if it was made by a call."""
    import gc
    from types import CodeType

    code = next((one for one in gc.get_referents(lazy) if type(one) is CodeType), None)
    return "" if code is None else f"{code.co_filename}:{_line(code, name)}"


def _line(code: CodeType, name: str) -> int:
    """Return the line of the statement that imports a module, or a part of it."""
    from dis import get_instructions

    lines = {
        one.argval: one.positions.lineno or 0
        for one in reversed(list(get_instructions(code)))
        if one.opname == "IMPORT_NAME" and one.positions is not None
    }
    named = [module for module in lines if module and f"{name}.".startswith(f"{module}.")]
    return lines[max(named, key=len)] if named else code.co_firstlineno
