"""The report of `cudaguard doctor`: as data, and to be put into an issue."""

from __future__ import annotations

from cudaguard.core.checks import STATUSES
from cudaguard.tools.doctor import text
from cudaguard.tools.layout import Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard.core.checks import CheckResult


def document(
    results: Iterable[CheckResult],
    environment: Mapping[str, str],
    version: str,
    inventory: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the report as plain data.

    Args:
        results: What came of the checks.
        environment: What of it is worth knowing: ``python``, ``platform``, ``torch`` ...
        version: Of cudaguard.
        inventory: What is installed here, None if that was not asked for or cannot be read.
    """
    told = [result.to_dict() for result in results]
    found = [check["status"] for check in told]
    return {
        "tool": "doctor",
        "version": version,
        "environment": dict(environment),
        "checks": told,
        "summary": {status: found.count(status) for status in STATUSES},
        "inventory": inventory,
    }


def inventory(report: Mapping[str, Any], page: Page) -> None:
    """Write what is installed, for a reader.

    Args:
        report: As `document` returns it.
        page: Where to.
    """
    from cudaguard.tools.doctor.inventory.text import write

    page.add(text.head(report))
    page.blank()
    found = report["inventory"]
    write(found, page) if found else page.add("unknown")


def bundle(report: Mapping[str, Any], json_text: str) -> str:
    """Return the report as Markdown, to be put into an issue.

    Args:
        report: As `document` returns it.
        json_text: The report as JSON.
    """
    checks, installed = Page(verbose=True), Page(verbose=True)
    text.write(report, checks)
    inventory(report, installed)
    parts = [
        "# cudaguard doctor",
        _fenced(str(checks)),
        "## Inventory",
        _fenced(str(installed)),
        "## The report as JSON",
        _fenced(json_text, "json"),
    ]
    return "\n\n".join(parts) + "\n"


def _fenced(words: str, language: str = "text") -> str:
    fence = "```"
    while fence in words:
        fence += "`"
    return f"{fence}{language}\n{words}\n{fence}"
