"""Known errors of CUDA in forked processes, of contexts and of GPU memory.

Source: torch ``torch/cuda/__init__.py``, ``c10/cuda/CUDACachingAllocator.cpp``; numba-cuda
``cudadrv/driver.py``; CUDA driver and runtime API, error 3; pytorch/pytorch#17357.
"""

from __future__ import annotations

import re

from cudaguard.core.known_errors import Explainer, known_in, of_texts
from cudaguard.core.record import variables_set
from cudaguard.features.cuda_init import findings
from cudaguard.files import bytes_in, os
from cudaguard.hooks.caller import entries_of
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.facts import Packages

if TYPE_CHECKING:
    from cudaguard.core.findings import Finding
    from cudaguard.core.known_errors import KnownError


def line_of_fork(text: str) -> str:
    """Return the line of an error's text that tells of CUDA after a fork, empty if none does.

    The last one: the text of an error of another process has its traceback in it.
    """
    found = [line.strip() for line in text.splitlines() if of_texts("forked").search(line)]
    return found[-1] if found else ""


_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_OTHER = re.compile(r"Process (\d{1,10}) has ([\d.]{1,12} \w{3,5})")


def memory_full(known: KnownError, hit: re.Match[str]) -> Finding:
    """Return who has most of the memory, by the numbers in torch's message."""
    words = {name: word for name, word in hit.groupdict().items() if word}
    if (match := of_texts("memory").match(hit.string, hit.end() + 2)) is not None:
        found = match.groupdict()
        size = {name: _bytes(amount) for name, amount in found.items()}
        others = _OTHER.findall(match[0])
        other, held = max(others, key=lambda one: _bytes(one[1]), default=("", "0 bytes"))
        if size["asked"] > size["total"]:
            words.update(asked=found["asked"], total=found["total"])
        elif _bytes(held) > size["total"] / 2:
            words.update(other=other, held=held)
        elif size["own"] - size["torch"] - size["reserved"] > size["total"] / 2:
            words.update(own=found["own"], few=found["torch"])
        elif size["reserved"] > size["asked"]:
            words.update(reserved=found["reserved"])
        elif size["torch"] > size["total"] / 2:
            words.update(torch=found["torch"])
    return known.with_words(**words)


def _bytes(amount: str) -> float:
    number, _, unit = amount.partition(" ")
    return float(number) * _UNITS.get(unit, 1)


def of_late_variable(error: BaseException) -> Finding | None:
    """Return which variable was set too late for a library of the packages that an error passed."""
    modules = [str(entry.tb_frame.f_globals.get("__name__")) for entry in entries_of(error)]
    passed, packages = {name.partition(".")[0] for name in modules}, Packages()
    text = str(error).lower()  # which speaks of what the variable is about, as of locking
    for name, (where, files) in variables_set.items():
        about = {word.lower().replace("ing", "") for word in name.split("_")[1:] if len(word) > 4}
        for file in files if (about - _COMMON) & {*re.findall(r"[a-z]+", text)} else ():
            if packages.of(file) in passed and b"\0%s\0" % name.encode() in bytes_in(file):
                moment, value = f"{os.path.basename(file)} is loaded", os.environ.get(name)
                told = findings.too_late_to_set(name, value, "the earlier one", moment, where, None)
                return told.replace(consequence=f"This is likely, not certain. {told.consequence}")
    return None


# Words of many variables, and of errors about other things.
_COMMON = {"threads", "device", "devices", "visible", "memory", "debug", "level", "cache"}
# The detector tells of a fork.
KNOWN = known_in(__file__, vars(findings), CG745=memory_full)
EXPLAINER = Explainer(KNOWN, lambda _: None, [findings.FORK.id], of_error=of_late_variable)
