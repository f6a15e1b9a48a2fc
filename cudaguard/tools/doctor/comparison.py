"""``doctor --diff``: what differs between the bundles of several hosts, and what of it matters.

Hosts that are alike in what matters form a group; each group is compared to the largest.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import NamedTuple

from cudaguard.core.checks import OK as FINE
from cudaguard.core.checks import SKIPPED
from cudaguard.files import LARGEST, read_bytes
from cudaguard.files.text import printable_data
from cudaguard.tools.common import FOUND, OK, SCHEMA, UsageError, json_text, show
from cudaguard.tools.layout import Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    Values = Mapping["Fact", str]

# In the order in which they are told.
KINDS = ("check", "finding", "driver", "GPUs", "torch", "library", "system", "Python", "tool",
         "variable", "package", "conda", "cudaguard")  # fmt: skip
_SYSTEM = ("os", "machine", "libc", "kind", "cpu", "instructions")
_PYTHON = ("version", "implementation", "threads")
_TORCH = ("cuda", "hip", "xpu", "commit", "debug")
# Paths of an account, and what differs from one process of a job to the next.
_OF_ACCOUNT = ("PATH", "VIRTUAL_ENV", "CONDA_", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
               "TORCHELASTIC_")  # fmt: skip
_BEFORE_HOST = "doctor-"  # as in doctor-%h.md
_FENCE = "```"
_MOST = 4  # names of reports in a line
_WIDTH = 10
ABSENT = "absent"
_PRONOUN = ("it", "them")
_WRITE = "cudaguard doctor --bundle FILE.md"


def execute(args: Namespace) -> int:
    """Compare the files of ``--diff``: 0 if they are alike in what matters, 1 if not."""
    if len(args.diff) < 2:
        raise UsageError("--diff: got 1 file, expected two or more, as in --diff a.md b.md")
    found = compare([read_facts(path) for path in args.diff], labels(args.diff))
    if args.format == "json":
        show(json_text({"tool": "doctor --diff", **found}))
    else:
        page = Page(sys.stdout, verbose=args.verbose)
        write(printable_data(found), page)
        show(str(page))
    return FOUND if len(found["groups"]) > 1 else OK


def read_facts(path: str) -> dict[Fact, str]:
    """Return the facts of the report in a bundle.

    Raises:
        UsageError: It cannot be read, or is none.
    """
    try:
        document = json.loads(_last_block(read_bytes(path, LARGEST).decode("utf-8")))
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror or error}."
        raise UsageError(told, command=f"ls -l {shlex.quote(path)}") from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("tool") != "doctor":
        raise UsageError(f"{path} is no bundle of doctor. Write one there.", command=_WRITE)
    if document.get("schema") != SCHEMA:
        told = f"{path} was written by another release of cudaguard. Write it again."
        raise UsageError(told, command=_WRITE)
    if document.get("inventory") is None:
        told = f"{path} has no inventory: what is installed could not be read there."
        raise UsageError(told, command=_WRITE)
    try:
        return facts_of(document)
    except (AttributeError, KeyError, TypeError):  # it may have been edited
        raise UsageError(f"{path} is damaged. Write it again.", command=_WRITE) from None


def _last_block(bundle: str) -> str:
    """Return the block of JSON that a bundle ends with; its fence is longer than any within."""
    lines = bundle.rstrip().split("\n")
    fence = lines.pop()
    if not fence.startswith(_FENCE) or f"{fence}json" not in lines:
        return ""
    last = max(number for number, line in enumerate(lines) if line == f"{fence}json")
    return "\n".join(lines[last + 1 :])


def labels(paths: Sequence[str]) -> list[str]:
    """Return a short name for each file, which no other has: that of the host, if it has one."""
    names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    if all(name.startswith(_BEFORE_HOST) for name in names):
        names = [name[len(_BEFORE_HOST) :] or name for name in names]
    return names if len(set(names)) == len(names) else list(paths)


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
        yield Fact("check", title, True), FINE if status == SKIPPED else status
        yield Fact("check", f"{title}, looked at", False), check["reason"]
        for finding in check["findings"]:
            matters = finding["severity"] != "info"
            yield Fact("finding", f"{check['id']}: {finding['what']}", matters), "found"


def gpus_told(gpu: Mapping[str, Any]) -> list[str]:
    """Return the GPUs, those of a kind together, as in ``8 x NVIDIA H100 80GB HBM3``."""
    models: list[str] = gpu["models"]
    if not models:
        count = gpu["pci_devices"]
        return [f"{count} on the PCI bus, models unknown" if count else "none"]
    return [f"{models.count(model)} x {model}" for model in dict.fromkeys(models)]


def compare(values: Sequence[Values], labels: Sequence[str]) -> dict[str, Any]:
    """Return how reports differ, as plain data.

    Args:
        values: The facts of each report, as `facts_of` returns them.
        labels: Their names.

    Returns:
        ``reports``; ``groups``, the largest first, to which the others are compared;
        ``folded``, what differs and seldom matters.
    """
    known = sorted(
        {fact for one in values for fact in one},
        key=lambda fact: (KINDS.index(fact.kind), fact.name),
    )
    differing = [fact for fact in known if len({one.get(fact, "") for one in values}) > 1]
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, one in enumerate(values):
        told = tuple(one.get(fact, "") for fact in differing if fact.matters)
        alike.setdefault(told, []).append(number)
    groups = sorted(alike.values(), key=len, reverse=True)  # of equal ones the first
    reference = values[groups[0][0]]
    return {
        "reports": list(labels),
        "groups": [
            {
                "reports": [labels[number] for number in group],
                "differences": _differences(differing, reference, values[group[0]]),
            }
            for group in groups
        ],
        "folded": [
            {"kind": fact.kind, "name": fact.name, "values": _spread(fact, values, labels)}
            for fact in differing
            if not fact.matters
        ],
    }


def _differences(
    differing: Sequence[Fact], reference: Values, here: Values
) -> list[dict[str, str]]:
    return [
        {"kind": fact.kind, "name": fact.name, "reference": there, "here": own}
        for fact in differing
        if fact.matters
        for there, own in [(reference.get(fact, ""), here.get(fact, ""))]
        if there != own
    ]


def _spread(fact: Fact, values: Sequence[Values], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return which reports have which value, the most frequent one first."""
    found: dict[str, list[str]] = {}
    for one, label in zip(values, labels):
        found.setdefault(one.get(fact, ""), []).append(label)
    spread = sorted(found.items(), key=lambda item: len(item[1]), reverse=True)
    return [{"value": value, "reports": names} for value, names in spread]


def write(found: Mapping[str, Any], page: Page) -> None:
    """Write a comparison.

    Args:
        found: As `compare` returns it.
        page: Where to; a verbose one gets what seldom matters too.
    """
    first, *others = found["groups"]
    page.add(_summary(found, first, others), style="yellow" if others else "green")
    for group in others:
        count = len(group["differences"])
        told = f"{count} difference{'s' * (count != 1)}"
        page.blank()
        page.add(f"{_names(first, page)} -> {_names(group, page)}: {told}")
        for one in group["differences"]:
            page.add(_difference(one), 2, lead=f"{one['kind']:<{_WIDTH}}", hanging=_WIDTH)
    folded = found["folded"]
    if not folded:
        return
    page.blank()
    if page.verbose:
        page.add("differences that seldom matter:")
        _write_folded(folded, page)
    else:
        told = "difference seldom matters" if len(folded) == 1 else "differences seldom matter"
        page.add(f"{len(folded)} more {told}: --verbose lists {_PRONOUN[len(folded) > 1]}")


def _summary(found: Mapping[str, Any], first: Mapping[str, Any], others: Sequence[Any]) -> str:
    total, alike = len(found["reports"]), len(first["reports"])
    if not others:
        return f"{total} reports: alike in what matters"
    if total == 2:
        return "2 reports: they differ"
    if alike == 1:
        return f"{total} reports: no two are alike"
    return f"{total} reports: {alike} are alike, the others ({total - alike}) differ from them"


def _names(group: Mapping[str, Any], page: Page) -> str:
    return page.listed(group["reports"], _MOST)


def _difference(one: Mapping[str, str]) -> str:
    kind, name, there, here = (one[key] for key in ("kind", "name", "reference", "here"))
    if kind == "finding":
        return f"{'only there' if here else 'not there'}: {name}"
    if kind in ("package", "conda", "torch"):
        there, here = _telling(there, here)
    subject = f"{name}: " if name else ""
    return f"{subject}{there or ABSENT} -> {here or ABSENT}"


def _telling(there: str, here: str) -> tuple[str, str]:
    """Return the versions alone where they differ, else all that is known of both."""
    versions = there.partition(", ")[0], here.partition(", ")[0]
    return versions if versions[0] != versions[1] else (there, here)


def _write_folded(folded: Sequence[Mapping[str, Any]], page: Page) -> None:
    for one in folded:
        page.add(one["name"], 2, lead=f"{one['kind']:<{_WIDTH}}", hanging=_WIDTH)
        for part in one["values"]:
            page.add(f"{_names(part, page)}: {part['value'] or ABSENT}", 4 + _WIDTH)
