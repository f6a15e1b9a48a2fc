"""CG911 to CG913: imports and NVML, each tried in a child."""

from __future__ import annotations

import os
from itertools import permutations

from cudaguard.api import active_rules
from cudaguard.core.checks import Check
from cudaguard.features.gpu_architectures.policy import torch_of
from cudaguard.features.gpu_architectures.torch_builds import Situation, findings_of
from cudaguard.system.nvrtc import copy_for
from cudaguard.system.site import Skipped
from cudaguard.system.torch_build import architectures, folder_of, look_around
from cudaguard.system.trial import Ending, end_children, try_imports
from cudaguard.tools.doctor.checks import messages as wording
from cudaguard.tools.doctor.checks.guard import affected, applying

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from cudaguard.model import Finding, Rule
    from cudaguard.system.site import Result, Site

    Order = tuple[str, ...]

MOST = 8  # modules: 56 pairs
_ALL = 3  # modules of which all orders are tried; of more, each ordered pair
_MOST_AT_ONCE = 4  # a torch that is being imported takes a core and half a gigabyte
# Asked without touching: it only looks whether somebody has called cuInit.
_ASK_DRIVER = """
import json
from cudaguard.system.driver import Driver
_state = Driver().state()
_note("answer " + json.dumps({"cuda": _state.is_initialized, "contexts": len(_state.active)}))
"""
_ASK_NVML = """
import json
from cudaguard.system.machine import look_at_machine
_note("answer " + json.dumps(look_at_machine().to_dict()))
"""


def check_orders(site: Site) -> Result:
    """Try orders of imports as they are, and those that fail under the guard."""
    names = list(dict.fromkeys(site.orders))
    if not names:
        raise Skipped("--orders A,B,C names the modules")
    if len(names) > MOST:
        raise Skipped(f"{len(names)} modules are too many orders: at most {MOST} are tried")
    singles = _tried(site, [(name,) for name in names])
    working = [order[0] for order, ending in singles.items() if not ending.kind]
    found = {**singles, **_tried(site, together(working))}
    failed = unexplained(order for order, ending in found.items() if ending.kind)
    guarded = _tried(site, failed, guarded=True)
    findings = [
        wording.not_found(order[0], _local_file(order[0]))
        if len(order) == 1 and _is_nowhere(order[0], found[order])
        else wording.order_fails(
            order, found[order], guarded[order], _works(order, found), site.limit
        )
        for order in failed
    ]
    findings += [wording.use_not_tested(name, rule) for name, rule in _known(site, working)]
    failures = sum(1 for one in found.values() if one.kind)
    return findings, wording.orders_tried(len(found), failures)


def together(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the orders of modules that work by themselves: pairs first, they tell most."""
    names = list(dict.fromkeys(names))
    pairs: list[tuple[str, ...]] = list(permutations(names, 2))
    return [*pairs, *permutations(names)] if len(names) == _ALL else pairs


def unexplained(
    failed: Iterable[tuple[str, ...]],
) -> list[tuple[str, ...]]:
    """Return the orders that fail and do not contain, in its order, a shorter one that does."""
    found: list[tuple[str, ...]] = []
    for order in sorted(failed, key=len):
        if not any(_is_within(other, order) for other in found):
            found.append(order)
    return found


def _is_within(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    rest = iter(whole)
    return all(name in rest for name in part)


def _known(site: Site, names: Sequence[str]) -> list[tuple[str, Rule]]:
    """Return the rules in force about installed releases of these modules, with the module."""
    active = {rule.id for rule in active_rules()}
    rules = [rule for rule in applying(site) if rule.id in active and affected(site, rule)]
    return [
        (name, rule)
        for name in names
        for rule in rules
        if name.partition(".")[0] in {watched.partition(".")[0] for watched in rule.watch}
    ]


def _is_nowhere(name: str, ending: Ending) -> bool:
    """Return True if there is no such module, in the words of Python."""
    parts = name.split(".")
    names = (".".join(parts[: end + 1]) for end in range(len(parts)))
    return any(ending.text.startswith(f"ModuleNotFoundError: No module named {n!r}") for n in names)


def _local_file(name: str) -> str:
    """Return what of this name lies in the working directory, which no child looks into."""
    top = name.partition(".")[0]
    return next((f for f in (f"{top}.py", f"{top}/__init__.py") if os.path.exists(f)), "")


def _works(order: Order, found: dict[Order, Ending]) -> Order:
    """Return another order of the same modules that works, nothing if none does."""
    return next((o for o, ending in found.items() if set(o) == set(order) and not ending.kind), ())


def check_alone(site: Site) -> Result:
    """Import torch, and each installed package that a rule watches, alone."""
    watched = [name.partition(".")[0] for rule in applying(site) for name in rule.watch]
    names = [name for name in dict.fromkeys(("torch", *watched)) if folder_of(name)]
    if not names:
        raise Skipped("no package that a rule watches is installed")
    endings = _tried(site, [(name,) for name in names], code=_ASK_DRIVER)
    findings = []
    for (name,), ending in endings.items():
        if ending.kind:
            findings.append(wording.does_not_import(name, ending, site.limit))
        elif ending.answer and ending.answer["cuda"]:
            findings.append(wording.initializes(name, ending.answer["contexts"]))
    seconds = ", ".join(f"{order[0]} {e.seconds:.1f} s" for order, e in endings.items())
    return findings, seconds


def _tried(
    site: Site, orders: Sequence[Order], *, guarded: bool = False, code: str = ""
) -> dict[Order, Ending]:
    """Try orders, several at once; ours is interrupted together with its children."""

    def attempt(order: Order) -> Ending:
        return try_imports(order, site.environ, site.limit, guarded=guarded, code=code)

    from concurrent.futures import ThreadPoolExecutor

    at_once = max(1, min(_MOST_AT_ONCE, len(os.sched_getaffinity(0))))
    pool = ThreadPoolExecutor(at_once)
    try:
        return dict(zip(orders, pool.map(attempt, orders)))
    except BaseException:  # interrupted: the threads wait for children that know nothing of it
        pool.shutdown(wait=False, cancel_futures=True)
        end_children()
        raise
    finally:
        pool.shutdown()


def _asked(site: Site, code: str) -> Any:
    """Return what a child answers.

    Raises:
        RuntimeError: It does not: then this check knows nothing.
    """
    ending = try_imports((), site.environ, site.limit, code=code)
    if ending.answer is None:
        said = " | ".join(ending.said)
        raise RuntimeError(f"the child {wording.words(ending, site.limit)}: {said}".rstrip(": "))
    return ending.answer


def check_gpus(site: Site) -> Result:
    """Ask NVML, and compare what it lists with what torch was built for."""
    machine = _asked(site, _ASK_NVML)
    if machine["nvml"] == "missing" and not machine["driver_library"]:
        raise Skipped("there is no NVIDIA driver")
    findings = [wording.machine_problem(problem) for problem in machine["problems"]]
    capabilities = tuple(
        (gpu["capability"][0], gpu["capability"][1]) for gpu in machine["gpus"] if gpu["capability"]
    )
    findings += _of_architectures(capabilities)
    names = ", ".join(gpu["name"] for gpu in machine["gpus"]) or "no GPU"
    return findings, f"driver {machine['driver_version'] or 'unknown'}, {names}"


def _of_architectures(capabilities: tuple[tuple[int, int], ...]) -> list[Finding]:
    torch = look_around()
    if not torch.cuda or not capabilities:
        return []
    folder = folder_of("torch")
    built = torch_of(torch.torch, architectures(folder))
    found = findings_of(Situation(capabilities, built, copy_for(folder)), 0)
    return [finding.replace(id=wording.GPUS) for finding in found]


ORDERS = Check(
    "CG911",
    "import orders",
    "Each module alone, then each ordered pair (all orders of up to three), in children with a "
    "time limit: as they are, and under the guard where that fails.",
    check_orders,
    "--orders",
)

IMPORTS = Check(
    "CG912",
    "imports of watched packages",
    "torch, and every installed package that a rule watches, imported alone in a child with a "
    "time limit: whether it crashes, hangs, or initializes CUDA.",
    check_alone,
    "--deep",
)

GPUS = Check(
    "CG913",
    "GPUs of this machine",
    "NVML is asked in a child: driver, devices, and whether torch has code for them.",
    check_gpus,
    "--deep",
)
