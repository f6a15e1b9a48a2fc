"""Runs the checks, each by itself: one that fails is told, and the others go on."""

from __future__ import annotations

from functools import partial
from time import monotonic

from cudaguard.core.checks import BROKEN, FAILED_ITSELF, SKIPPED, Check
from cudaguard.features.builds import checks as builds
from cudaguard.features.duplicate_libraries.checks import installed, libraries
from cudaguard.features.extensions import checks as extensions
from cudaguard.features.gpu_architectures import checks as cuda
from cudaguard.system.aside import NoAnswer, aside
from cudaguard.system.site import Skipped
from cudaguard.tools.doctor.catalog import CHECKS
from cudaguard.tools.doctor.checks import ages, guard, imports, machine, rules
from cudaguard.tools.doctor.verdict import status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from cudaguard.system.site import Result, Site

DOING: dict[str, Callable[[Site], Result]] = {
    "CG901": rules.check,
    "CG902": extensions.check,
    "CG903": libraries.check,
    "CG904": cuda.check,
    "CG905": installed.check,
    "CG906": installed.check_pins,
    "CG907": builds.check_tools,
    "CG908": builds.check_cache,
    "CG909": guard.check,
    "CG910": ages.check,
    "CG911": imports.check_orders,
    "CG912": imports.check_alone,
    "CG913": machine.check_gpus,
    "CG914": machine.check_plugins,
}


def examine(
    site: Site, ids: Iterable[str], tell: Callable[[str, BaseException], None]
) -> Iterator[Check]:
    """Yield what comes of the checks.

    Args:
        site: This environment.
        ids: The checks.
        tell: Is told of a check that has failed by itself, with the error.
    """
    for id in ids:
        yield _one(site, id, tell)


def examine_aside(
    site: Site,
    ids: Iterable[str],
    tell: Callable[[str, BaseException], None],
    limit: float,
    running: Callable[[str], None],
) -> tuple[list[Check], dict[str, str] | None]:
    """Make checks in a process of their own: one that waits for a dead disk is given up.

    Args:
        site: This environment.
        ids: The checks.
        tell: Is told, there, of a check that has failed by itself, with the error.
        limit: Seconds for one check.
        running: Is told which check goes on.

    Returns:
        What comes of them, and what is installed with its version, None if that is not to be known.
    """
    ids = list(ids)
    tasks: list[Callable[[], Any]] = [partial(_one, site, id, tell) for id in ids]
    answers = aside([*tasks, partial(_packages, site)], limit)
    checks = []
    for id in ids:
        title = CHECKS[id].title
        running(f"{id}  {title} ...")
        answer = next(answers)
        if isinstance(answer, NoAnswer):
            reason = answer.why + "; --timeout S gives it more" * answer.is_late
            answer = Check(id, title, BROKEN, reason, round(1000 * answer.seconds))
        checks.append(answer)
    packages = next(answers)
    return checks, None if isinstance(packages, NoAnswer) else packages


def _packages(site: Site) -> dict[str, str]:
    return {dist.name: dist.version for dist in site.distributions}


def _one(site: Site, id: str, tell: Callable[[str, BaseException], None]) -> Check:
    title, started = CHECKS[id].title, monotonic()

    def ended(status: str, reason: str) -> Check:
        return Check(id, title, status, reason, round(1000 * (monotonic() - started)))

    try:
        findings, seen = DOING[id](site)
    except Skipped as why:
        return ended(SKIPPED, str(why))
    except Exception as error:  # the others still have something to say
        tell(id, error)
        return ended(BROKEN, f"{FAILED_ITSELF}: {type(error).__name__}: {error}")
    return ended(status_of(findings), seen).replace(findings=tuple(findings))
