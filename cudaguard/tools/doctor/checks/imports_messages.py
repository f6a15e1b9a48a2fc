"""The wording of imports that were tried in children."""

from __future__ import annotations

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.model import Rule
    from cudaguard.system.trial import Ending


ORDERS, ALONE, GPUS, PLUGINS = "CG911", "CG912", "CG913", "CG914"


def words(ending: Ending, limit: float) -> str:
    """Return how a child ended, in a few words."""
    told = {
        "": "works",
        "signal": f"is ended by {ending.text}",
        "hang": f"does not end within {limit:g} s",
        "error": f"fails with {ending.text}",
        "exit": f"ends with status {ending.text}",
    }[ending.kind]
    if not ending.kind:
        return told
    return f"{told} {f'in the import of {ending.at}' if ending.at else 'when the process ends'}"


def _ends(ending: Ending) -> str:
    return "hang, or take longer" if ending.kind == "hang" else "fail"


def not_found(name: str, local: str) -> Finding:
    """A module that is not there.

    Args:
        name: The module.
        local: A file of that name in the working directory; empty if there is none.
    """
    if local:
        return Finding(
            ORDERS,
            f"The module {name} is not installed. {local} in the working directory is not tried.",
            severity="error",
            consequence="doctor does not try its import orders.",
            remedy="put its folder on PYTHONPATH",
            command=f"PYTHONPATH=. cudaguard doctor --orders {name}",
        )
    return Finding(
        ORDERS,
        f"The module {name} is not installed.",
        severity="error",
        consequence="doctor does not try its import orders.",
        remedy="name the module that is imported, not the distribution (cv2, not opencv-python)",
        command=f"python -c 'import {name}'",
    )


def order_fails(
    order: Sequence[str], ending: Ending, guarded: Ending, working: Sequence[str], limit: float
) -> Finding:
    """An order of imports that fails.

    Args:
        order: The modules.
        ending: How it ends without the guard.
        guarded: How it ends under the guard.
        working: Another order of the same modules that works, if one does.
        limit: Seconds that it was given.
    """
    told = f"import {', '.join(order)}"
    these = "them in this order" if len(order) > 1 else "it first"
    is_cured = not guarded.kind
    remedy = f"import {', '.join(working)}, in this order" if working else ""
    if is_cured:
        remedy = "let cudaguard repair it with cudaguard.install()" + (
            f"; or {remedy}" if remedy else ""
        )
    elif len(order) == 1:
        remedy = "find out why it fails even alone, or reinstall it"
    command = "export CUDAGUARD=fix"
    if not is_cured:
        command = f"cudaguard bisect --imports {','.join(order)}"
    return Finding(
        ORDERS,
        f"`{told}` {words(ending, limit)}.",
        severity="warning" if is_cured else "error",
        evidence=(*ending.said, f"under the guard it {words(guarded, limit)}"),
        consequence=f"programs that import {these} {_ends(ending)}.",
        remedy=remedy or "find with bisect what they need, as no order that was tried works",
        command=command,
    )


def orders_tried(tried: int, failures: int) -> str:
    """What was tried; a success is one of the imports alone."""
    if failures:
        return f"tried: {tried}, of which fail: {failures}; use was not tested"
    return f"imports succeed; use was not tested; tried: {tried}"


def use_not_tested(name: str, rule: Rule) -> Finding:
    """A rule about a module whose import works."""
    return Finding(
        ORDERS,
        f"The import of {name} succeeds, but may not show the fault of rule {rule.id}: "
        f"{rule.title or rule.why}.",
        rule=rule.id,
        severity="info",
        consequence="an order that imports without an error may still crash or compute wrong "
        "results later.",
        remedy="read the rule, and the result of check CG901",
        command=f"cudaguard rules show {rule.id}",
    )


def does_not_import(name: str, ending: Ending, limit: float) -> Finding:
    """A package that cannot be imported."""
    return Finding(
        ALONE,
        f"`import {name}`, alone and without the guard, {words(ending, limit)}.",
        severity="error",
        evidence=ending.said,
        consequence=f"programs that import it first {_ends(ending)}.",
        remedy="run it with faulthandler, and let cudaguard explain the error",
        command=f"python -X faulthandler -c 'import {name}' 2>&1 | cudaguard explain -",
    )


def initializes(name: str, contexts: int) -> Finding:
    """A package whose import initializes CUDA."""
    more = f", and creates a context on {contexts} GPU{'s' * (contexts > 1)}" if contexts else ""
    return Finding(
        ALONE,
        f"`import {name}` initializes CUDA{more}.",
        consequence="processes forked afterwards cannot use CUDA. Later changes of "
        "CUDA_VISIBLE_DEVICES have no effect.",
        remedy=f"import {name} late, in the process that uses it; start workers with 'spawn'",
        command=f"cudaguard run -c 'import {name}'",
    )


def machine_problem(problem: str) -> Finding:
    """Something that NVML tells, in the words of `cudaguard.system.machine`."""
    return Finding(
        GPUS,
        f"{problem[0].upper()}{problem[1:]}.",
        consequence="torch may use no GPU, or not all of them.",
        remedy="check it against the output of nvidia-smi",
        command="nvidia-smi",
    )


def plugin_failed(value: str, origin: str, error: str) -> Finding:
    """A rule plug-in that raises."""
    return Finding(
        PLUGINS,
        f"The rule plug-in {value} of {origin.partition('.dist-info')[0]} cannot be loaded: "
        f"{error}.",
        consequence="its rules do not act.",
        remedy="fix or uninstall the plug-in, or set CUDAGUARD_PLUGINS=0",
        command=f"python -c 'import {value.partition(':')[0]}'",
    )
