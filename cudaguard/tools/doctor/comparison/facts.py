"""A report as a flat list of facts, each of which matters to "works here, crashes there" or not."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.core.checks import OK, SKIPPED
from cudaguard.tools.doctor.inventory.text import gpus_told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

# In the order in which they are told.
KINDS = ("check", "finding", "driver", "GPUs", "torch", "library", "system", "Python", "tool",
         "variable", "package", "conda", "cudaguard")  # fmt: skip
_SYSTEM = ("os", "machine", "libc", "kind", "cpu", "instructions")
_PYTHON = ("version", "implementation", "threads")
_TORCH = ("cuda", "hip", "xpu", "commit", "debug")
# Paths of an account, and what differs from one process of a job to the next.
_OF_ACCOUNT = ("PATH", "VIRTUAL_ENV", "CONDA_", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
               "TORCHELASTIC_")  # fmt: skip


class Fact(NamedTuple):
    """What is compared.

    Args:
        kind: One of `KINDS`.
        name: Of what.
        matters: False for what seldom makes a program work on one host and crash on another.
    """

    kind: str
    name: str
    matters: bool


def facts_of(report: Mapping[str, Any]) -> dict[Fact, str]:
    """Return the facts of a report with their values, as texts."""
    return {fact: str(value) for fact, value in _facts(report)}


def _facts(report: Mapping[str, Any]) -> Iterator[tuple[Fact, object]]:
    yield from _checks(report)
    found = report["inventory"]
    gpu = found["gpu"]
    yield Fact("driver", "kernel module", True), gpu["driver"]
    yield Fact("driver", "libcuda.so.1", True), gpu["library_version"]
    yield Fact("driver", "file", False), gpu["library"]
    yield Fact("GPUs", "", True), ", ".join(gpus_told(gpu))
    for kind, key, named in (
        ("torch", "torch", _TORCH),
        ("system", "system", _SYSTEM),
        ("Python", "python", _PYTHON),
    ):
        for name, value in found[key].items():
            if (kind, name) != ("torch", "version"):  # told with its build, below
                yield Fact(kind, name, name in named), value
    for kind, key in (("library", "libraries"), ("tool", "tools"), ("variable", "variables")):
        for name, value in found[key].items():
            yield Fact(kind, name, kind != "variable" or not name.startswith(_OF_ACCOUNT)), value
    for kind, key, others in (
        ("package", "packages", "other_packages"),
        ("conda", "conda", "other_conda"),
    ):
        for one in found[key]:
            parts = (one["version"], one["build"], one["source"])
            name = "torch" if one["name"] == "torch" else kind  # of which all is told together
            yield Fact(name, str(one["name"]), True), ", ".join(filter(None, parts))
        for name, value in found[others].items():
            yield Fact(kind, name, False), value
    yield Fact("cudaguard", "version", True), report["version"]


def _checks(report: Mapping[str, Any]) -> Iterator[tuple[Fact, object]]:
    for check in report["checks"]:
        title, status = f"{check['id']} {check['title']}", check["status"]
        # What is skipped here and fine there has nothing to look at: other facts say why.
        yield Fact("check", title, True), OK if status == SKIPPED else status
        yield Fact("check", f"{title}, looked at", False), check["reason"]
        for finding in check["findings"]:
            matters = finding["severity"] != "info"
            yield Fact("finding", f"{check['id']}: {finding['what']}", matters), "found"
