"""The wording of how a program under ``cudaguard run`` has died, from the document of its report.

The document is what ``--report`` writes (``schema/run.json``); the text says the same in words.
"""

from __future__ import annotations

import os
import re
import signal
import sys

from cudaguard import errors
from cudaguard.tools.layout import MOST
from cudaguard.tools.run.stacks import STACK, add_stacks, is_extension_of_python, name_of, short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.system.processes import ForkedWait
    from cudaguard.tools.layout import Page

# What a path has up to the packages; a look at the beginning of each word alone.
_IN_PACKAGES = re.compile(r"(?<!\S)([^\s/]*)/\S*-packages/")
_INDENT = 2
_SIGNALS = {
    "SIGSEGV": "segmentation fault",
    "SIGABRT": "aborted",
    "SIGBUS": "bus error",
    "SIGFPE": "arithmetic error",
    "SIGILL": "illegal instruction",
    "SIGKILL": "killed",
    "SIGSYS": "forbidden system call",
    "SIGTRAP": "trap",
}


# As `faulthandler` calls them.
_FAULTS = {
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
    "Segmentation fault": "SIGSEGV",
}


def signal_name(number: int) -> str:
    """Return the name of a signal, as in ``SIGSEGV``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def summary(
    ended: dict[str, Any],
    process: dict[str, Any],
    others: Sequence[dict[str, Any]],
    fault: str,
    error: str,
) -> str:
    """Return in one sentence how the program has ended.

    Args:
        ended: The part ``ended`` of the document.
        process: Its part ``process``.
        others: Its part ``others``.
        fault: What ``faulthandler`` says of that process, as in ``Segmentation fault``.
        error: The error that ended that process, if one did.
    """
    seconds = f"after {ended['seconds']:.1f} s"
    if not process["is_program"]:
        name = _FAULTS.get(fault, "")
        how = f"died of {_with_meaning(name) if name else fault}" if fault else _ended_with(error)
        then = f"the program then ended with status {ended['status']} {seconds}"
        return f"{name_of(process)} {how} after {process['seconds']:.1f} s; {then}"
    who = "the program" if process["rank"] is None else name_of(process)
    if ended["kind"] == "timeout":
        return f"{who} was still running {seconds}, and was ended with all it had started"
    if ended["kind"] == "signal":
        return f"{who} died of {_with_meaning(ended['signal'])} {seconds}"
    if error:
        return f"{who} {_ended_with(error)} {seconds}"
    told = f"{who} ended with status {ended['status']} {seconds}"
    return f"{told}; a process that it had started died" if others else told


def _ended_with(error: str) -> str:
    return f"ended with {error.partition(':')[0]}"


def _with_meaning(name: str) -> str:
    return f"{name} ({_SIGNALS[name]})" if name in _SIGNALS else name


def killed_for_memory(kills: int | None) -> str:
    """Return the hint about SIGKILL that nobody here has sent.

    Args:
        kills: Processes of this control group that the kernel has killed for want of memory
            meanwhile; None where nobody tells.
    """
    if kills:
        return (
            "the kernel killed a process of this container or job because it was out of memory: "
            "give it more, or use less (smaller batches, fewer workers)"
        )
    if kills is None:
        return "killed by SIGKILL, sender unknown: check dmesg and your scheduler's log"
    return (
        "killed by SIGKILL, sender unknown; the kernel counts no out-of-memory kill in this "
        "container or job: check your scheduler's log, and dmesg on the host"
    )


def silent_ranks(ranks: Sequence[int], kills: int | None) -> str:
    """Return the hint about ranks that have vanished without a word.

    Args:
        ranks: These.
        kills: As in `killed_for_memory`.
    """
    named = ", ".join(map(str, ranks))
    who = f"rank{'s'[: len(ranks) > 1]} {named}"
    told = f"{who} ended without an error, probably by SIGKILL or SIGTERM"
    return f"{told}; {killed_for_memory(kills)}" if kills else told


def limited_address_space(limit: int) -> str:
    """Return the hint about a MemoryError under ``ulimit -v``."""
    return (
        f"`ulimit -v` limits the program to {limit / (1 << 30):.1f} GiB of addresses: remove that "
        "limit, as CUDA reserves far more addresses than memory"
    )


NO_PYTHON = (
    "the command started no guarded Python: it starts none, starts it with -I or -E, or changes "
    "PYTHONPATH"
)


def no_traceback(name: str) -> str:
    """Return the hint that ``faulthandler`` has left nothing, though the signal was its own."""
    return (
        f"{name} left no Python stack here: the program enables faulthandler itself (then see "
        "above), a library handles the signal, or the program called exec"
    )


def not_recorded(why: str) -> str:
    """Return the hint that the record of the program is not whole, or is not there."""
    return f"this report is incomplete, as the run could not be recorded: {why}"


def fork_cause(waits: Sequence[ForkedWait], program: str) -> dict[str, Any]:
    """Return why forks hang that wait for OpenMP's threads, which their parent alone has.

    Args:
        waits: What forks waited for.
        program: The program and its arguments as a shell takes them; empty if it is no Python's.
    """
    first = waits[0]
    shown = (
        f"process {first.pid} has 1 thread, which waits in libgomp; process {first.parent}, which "
        f"forked it, has {first.threads}"
    )
    who, whose = f"The forked process {first.pid} waits", "its"
    if len(waits) > 1:
        who, whose = f"{len(waits)} forked processes wait", "their"
    python = os.path.basename(sys.executable) or "python"
    return {
        "what": f"{who} forever for OpenMP threads (libgomp) that only {whose} parent has.",
        "evidence": [shown, first.library],
        "remedy": "start the workers with multiprocessing's spawn or forkserver, or before the "
        "first parallel computation; or limit them to one thread (torch.set_num_threads(1), "
        "threadpoolctl)",
        "command": f"OMP_NUM_THREADS=1 {python} {program}" if program else "",
    }


def guard_will_do(rule: str, call: str) -> str:
    """Return what has the guard repair the fault of a rule: that call, as in ``install()``."""
    first = f"`import cudaguard; {call}`"
    if rule in call:
        return f"put {first} first; {rule} is off by default, as it changes more than the fault"
    return f"run it in mode fix, or put {first} first: {rule} repairs it"


def write(document: dict[str, Any], page: Page) -> None:
    """Write the report in words.

    Args:
        document: The report.
        page: Where to.
    """
    page.add(f"cudaguard run: {document['what']}.", style="bold")
    running = document["running"]
    _add(page, "running", ", and in it ".join(map(_step, running[-MOST:])))
    is_above = document["error"] is not None and document["process"]["is_program"]
    if not is_above:  # the program has printed its traceback
        add_stacks(page, STACK, document)
    page.items("C frame", document["c_stack"], _INDENT)
    recent = [short(file) for file in document["recent"] if not is_extension_of_python(file)]
    _add(page, "mapped last", page.listed(recent))
    lacking = [_sought(one) for one in document["not_found"]]
    _add(page, "not found", page.listed(lacking))
    for other in document["others"]:
        who = "a process that the program had forked" if other["is_fork"] else name_of(other)
        add_stacks(page, f"{who}: {other['what'] or 'was running'}", other)
    _add_findings(page, document)
    if document["cause"] is not None:
        page.finding(document["cause"], "cause: ", _INDENT, parts=("evidence", "remedy"))
    for rule in document["rules"]:
        fits = "fits" if rule["is_certain"] else "may fit"
        _add(page, "rule", f"{rule['id']} {fits}: {rule['title'] or rule['why']}")
        libraries = page.listed([short(file) for file in rule["libraries"]])
        page.add(f"in the global symbol scope were {libraries}" if libraries else "", 2 * _INDENT)
    _add(page, "repaired", page.listed(document["repairs"]))
    for hint in document["hints"]:
        _add(page, "hint", hint)
    _add(page, "remedy", document["remedy"])
    _add(page, "run", document["command"])


def _add(page: Page, label: str, text: str) -> None:
    if text:
        page.labeled(label, text, _INDENT)


def _add_findings(page: Page, document: dict[str, Any]) -> None:
    """Add what the guard has found; of the error that ended the program, what is not said above."""
    error = document["error"]["finding"] if document["error"] is not None else None
    for finding in document["findings"]:
        is_told_below = error is not None and error["id"] == finding["id"]
        if finding["severity"] != "info" and not is_told_below:
            evidence = [_IN_PACKAGES.sub(r"\1", item) for item in finding["evidence"]]
            told = {**finding, "evidence": evidence}
            page.finding(told, f"found: [{finding['id']}] ", _INDENT, parts=("evidence",))
    # An error of the guard's has said in the traceback what is wrong and what to do.
    name = document["error"]["text"].partition(":")[0] if error else ""
    if error is not None and not hasattr(errors, name):
        parts = () if document["error"]["is_said"] else ("remedy",)
        page.finding(error, f"error: [{error['id']}] ", _INDENT, parts=parts)


def _sought(library: dict[str, str]) -> str:
    where = f", requested at {short(library['where'])}" if library["where"] else ""
    return f"{library['name']}{where}"


def _step(step: dict[str, Any]) -> str:
    verb = "import" if step["kind"] == "import" else "load"
    file = f" from {short(step['file'])}" if step["file"] not in ("", step["name"]) else ""
    where = f" at {short(step['where'])}" if step["where"] else ""
    return f"{verb} {step['name']}{file}{where}"
