"""Writes what doctor has found: as text, as data, and as a bundle for an issue."""

from __future__ import annotations

import sys
from typing import NamedTuple

from cudaguard.core.checks import STATUSES
from cudaguard.files import write_text
from cudaguard.files.text import printable_data
from cudaguard.system.shareable import shareable
from cudaguard.tools.common import json_text, note, show
from cudaguard.tools.doctor import text
from cudaguard.tools.doctor.other_python import command_here
from cudaguard.tools.layout import Page
from cudaguard.tools.output import named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard.core.checks import CheckResult


class Look(NamedTuple):
    """What is told of an environment besides the checks.

    Args:
        torch: Its version, ``none`` or ``unknown``.
        inventory: For a bundle, what is installed; None if that cannot be read.
    """

    torch: str
    inventory: dict[str, Any] | None


def write(args: Namespace, results: Iterable[CheckResult], look: Look) -> bool:
    """Write what was asked for; return whether that went well.

    Args:
        args: The command line.
        results: What came of the checks.
        look: What else is told.
    """
    import platform

    import cudaguard

    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "interpreter": sys.executable or "unknown",
        "torch": look.torch,
    }
    report = document(results, environment, cudaguard.__version__)
    shown = _shown(args, report)
    went_well = True
    if args.bundle:
        whole = shareable({**report, "inventory": look.inventory})
        went_well = save(args.bundle, bundle(printable_data(whole), json_text(whole)))
    if shown:
        show(shown)
    return went_well


def document(
    results: Iterable[CheckResult], environment: Mapping[str, str], version: str
) -> dict[str, Any]:
    """Return the report as plain data.

    Args:
        results: What came of the checks.
        environment: What of it is worth knowing: ``python``, ``platform``, ``torch`` ...
        version: Of cudaguard.
    """
    told = [result.to_dict() for result in results]
    for check in told:
        for finding in check["findings"]:
            finding["command"] = command_here(finding["command"])
    found = [check["status"] for check in told]
    return {
        "tool": "doctor",
        "version": version,
        "environment": dict(environment),
        "checks": told,
        "summary": {status: found.count(status) for status in STATUSES},
    }


def bundle(report: Mapping[str, Any], json_text: str) -> str:
    """Return the report as Markdown, to be put into an issue.

    Args:
        report: As `document` returns it.
        json_text: The report with the inventory, as JSON.
    """
    page = Page(verbose=True)
    text.write(report, page)
    parts = [
        "# cudaguard doctor",
        _fenced(str(page)),
        "## The report as JSON, and what is installed",
        _fenced(json_text, "json"),
    ]
    return "\n\n".join(parts) + "\n"


def _fenced(words: str, language: str = "text") -> str:
    fence = "```"
    while fence in words:
        fence += "`"
    return f"{fence}{language}\n{words}\n{fence}"


def _shown(args: Namespace, report: dict[str, Any]) -> str:
    """Return the report in the format that was asked for; all but text may go to others."""
    if args.format == "json":
        return json_text(shareable(report))
    page = Page(sys.stdout, verbose=args.verbose)
    text.write(printable_data(report), page)
    return str(page)


def save(path: str, content: str) -> bool:
    """Write a file, and say so if that fails; return whether it went well.

    Args:
        path: The file; see `named`.
        content: The text.
    """
    path = named(path)
    try:
        write_text(path, content)
    except OSError as error:
        note("doctor", f"{path} cannot be written: {error}")
        return False
    return True
