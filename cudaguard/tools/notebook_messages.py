"""The wording of ``%load_ext cudaguard``: what is guarded, and what came too early for that."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OFF = "cudaguard stays off, as the variable CUDAGUARD says."
NOT_LATE = "Nothing that it watches was imported before it."
START_AGAIN = (
    "cudaguard guards what is imported from now on. To guard the rest as well, restart Python (in\n"
    "a notebook: restart the kernel) with `%load_ext cudaguard` first."
)


def loaded(mode: str, early: Mapping[str, Iterable[str]], repaired: Iterable[str]) -> str:
    """Return what is said when the extension is loaded.

    Args:
        mode: The mode in force.
        early: Watched module that was there before -> what it was too early for, in words.
        repaired: What was repaired afterwards.
    """
    headline = f"cudaguard is on in this session, mode {mode}."
    if not early:
        return f"{headline} {NOT_LATE}"
    lines = [f"{headline} Imported before it: {', '.join(early)}."]
    missed = {module: tuple(rules) for module, rules in early.items()}
    for module, rules in missed.items():
        lines += [f"  too late for {module}: {rule}" for rule in rules]
    lines += [f"  repaired afterwards: {item}" for item in repaired]
    well = [module for module, rules in missed.items() if not rules]
    if well:
        lines.append(f"  nothing missed: {', '.join(well)}")
    if len(well) < len(missed):
        lines.append(START_AGAIN)
    return "\n".join(lines)
