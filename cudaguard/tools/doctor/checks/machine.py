"""CG913, CG914: what NVML says, and whether rule plug-ins load. Both are asked in a child."""

from __future__ import annotations

import sys

from cudaguard.core.checks import Check
from cudaguard.core.plugins import scan
from cudaguard.features.gpu_architectures.policy.architectures import torch_of
from cudaguard.features.gpu_architectures.torch_builds import Situation, findings_of
from cudaguard.system.nvrtc import copy_for
from cudaguard.system.site import Skipped
from cudaguard.system.torch_build import architectures, folder_of, look_around
from cudaguard.system.trial import try_imports
from cudaguard.tools.doctor.checks import imports_messages as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.model import Finding
    from cudaguard.system.site import Result, Site

_ASK_NVML = """
import json
from cudaguard.system.machine import look_at_machine
_note("answer " + json.dumps(look_at_machine().to_dict()))
"""
_LOAD_PLUGIN = """
import json
from cudaguard.tools.catalog import RULES
from cudaguard.core.plugins import Entry, load
try:
    load(Entry({module!r}, {value!r}, {origin!r}), known=[rule.id for rule in RULES])
except BaseException as error:
    _note("answer " + json.dumps(type(error).__name__ + ": " + str(error)))
"""


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


def check_plugins(site: Site) -> Result:
    """Load each rule plug-in, each in a child."""
    entries = [entry for found in scan(sys.path).values() for entry in found]
    if not entries:
        raise Skipped("no rule plug-in is installed")
    findings = []
    for entry in entries:
        code = _LOAD_PLUGIN.format(module=entry.module, value=entry.value, origin=entry.origin)
        ending = try_imports((), site.environ, site.limit, code=code)
        error = ending.answer or (wording.words(ending, site.limit) if ending.kind else "")
        if error:
            findings.append(wording.plugin_failed(entry.value, entry.origin, error))
    return findings, f"plug-ins: {len(entries)}"


GPUS = Check(
    "CG913",
    "GPUs of this machine",
    "NVML is asked in a child: driver, devices, compute modes, and whether torch has code for "
    "them.",
    check_gpus,
    "--deep",
)


PLUGINS = Check(
    "CG914",
    "rule plug-ins",
    "The entry points of the group cudaguard.rules are loaded in a child with a time limit.",
    check_plugins,
    "--deep",
)
