"""What may cure a program that has died: rules that fit, a change of its source, a command."""

from __future__ import annotations

from cudaguard.system.facts import Facts
from cudaguard.system.redact import redacted_arguments
from cudaguard.tools.run import messages as wording
from cudaguard.tools.run.conclusions import fitting, likeliest
from cudaguard.tools.run.patch import imports_up_to, moved_first, with_guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.tools.run.conclusions import Fit, Story
    from cudaguard.tools.run.program import Program
    from cudaguard.tools.run.sources import Sources

    Stack = Sequence[dict[str, Any]]


def fits(story: Story, mode: str, sources: Sources, stack: Stack) -> tuple[Fit, ...]:
    """Return the rules that may explain it, the likeliest.

    Args:
        story: What the process did last.
        mode: The mode that the guard had in it.
        sources: Reads the program.
        stack: Where it was, innermost first.
    """
    from cudaguard.api import active_rules
    from cudaguard.core.decide import applying
    from cudaguard.core.modes import repaired_by
    from cudaguard.tools.catalog import RULES

    # The modules of rules that are off are not watched; the program says that it imports them.
    source = sources.program()
    said = [package for line in _own_lines(stack) for package in imports_up_to(source, line)]
    imported = tuple(dict.fromkeys((*said, *story.imported)))
    active = active_rules()
    known = {rule.id: rule for rule in (*RULES, *active)}
    found = fitting(known.values(), story._replace(imported=imported), repaired_by(active, mode))
    here = applying([fit.rule for fit in found], Facts())
    return likeliest(fit for fit in found if fit.rule in here)


def change_of(
    found: Sequence[Fit], story: Story, sources: Sources, stack: Stack, *, is_import: bool
) -> dict[str, str] | None:
    """Return the suggested change of the program: what it does, and as a patch.

    Args:
        found: The rules that fit.
        story: What the process did last.
        sources: Reads the program.
        stack: Where it was, innermost first.
        is_import: True if it died in an import.
    """
    source = sources.program()
    if not source:
        return None
    call, id = next(((fit.call, fit.rule.id) for fit in found if fit.call), ("", ""))
    if call:
        what = wording.guard_will_do(id, is_opt_in=id in call)
        patch = with_guard(source, sources.script, call)
        return {"what": what, "patch": patch} if patch else None
    own = _own_lines(stack)
    if not (is_import and own):
        return None
    before = {name.partition(".")[0] for name in story.imported}
    patch = moved_first(source, sources.script, own[0], before)
    moved = imports_up_to(source, own[0])[-1:]
    return {"what": wording.order_may_do(*moved), "patch": patch} if patch and moved else None


def bisect_command(program: Program, story: Story, limit: float = 0.0) -> str:
    """Return the command that finds the imports which do it; empty if there is only one.

    Args:
        program: The program.
        story: What it did last.
        limit: Seconds after which a run is taken for a hang; 0.0 for no limit.
    """
    import shlex

    if not program.script and program.words[:1] != ("-m",):
        names = list(dict.fromkeys(name.partition(".")[0] for name in story.imported))
        return f"cudaguard bisect --imports {','.join(names)}" if len(names) > 1 else ""
    option = f"--timeout {limit:.0f} " if limit else ""
    return f"cudaguard bisect {option}{shlex.join(redacted_arguments(program.words))}"


def filled(command: str, words: Sequence[str]) -> str:
    """Return a command of `explain` for this program; empty if it has a slot, or is this command.

    Args:
        command: The command; empty if there is none.
        words: The program and its arguments; none if it cannot be started again.
    """
    import shlex

    slots = {"FILE", "SCRIPT"}.intersection(command.split())
    if command.startswith("cudaguard run") or "FILE" in slots or (slots and not words):
        return ""
    return command.replace("SCRIPT", shlex.join(redacted_arguments(words)))


def _own_lines(stack: Stack) -> list[int]:
    """Return the lines of the program itself that were running, innermost first."""
    return [frame["line"] for frame in stack if frame["is_program"]]
