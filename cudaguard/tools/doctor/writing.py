"""Writes what doctor has found: as text, data, annotations, and as a bundle for an issue."""

from __future__ import annotations

import os
import sys

from cudaguard.files import write_text
from cudaguard.files.text import printable_data
from cudaguard.model import SEVERITIES
from cudaguard.tools import sarif
from cudaguard.tools.common import github, json_text, note, show
from cudaguard.tools.output import named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from cudaguard.core.checks import CheckResult
    from cudaguard.system.site import Site

    Redact = Callable[[str], str]

ANNOTATIONS = dict(zip(SEVERITIES, ("notice", "warning", "error")))


def write(
    args: Namespace, results: Iterable[CheckResult], found: Mapping[str, Any] | None, site: Site
) -> bool:
    """Write what was asked for; return whether that went well.

    Args:
        args: The command line.
        results: What came of the checks.
        found: The inventory, or what of it is known; None if it cannot be read.
        site: The environment.
    """
    from cudaguard.tools.doctor import document

    report = _report(results, found)
    needs_redaction = args.redact and (args.format != "text" or args.inventory or args.bundle)
    redact = _redactor(site) if needs_redaction else None
    shown = _shown(args, report, redact)
    went_well = True
    if args.bundle:
        content = document.bundle(printable_data(report), json_text(_redacted(report, redact)))
        went_well = save(args.bundle, redact(content) if redact else content)
    if shown:
        show(shown)
    return went_well


def _shown(args: Namespace, report: dict[str, Any], redact: Redact | None) -> str:
    """Return the report in the format that was asked for."""
    from cudaguard.tools.doctor import document

    if args.format == "json":
        return json_text(_redacted(report, redact))
    if args.format == sarif.FORMAT:
        return sarif.of_doctor(_redacted(report, redact))
    if args.format == "github":  # logs of workflows are public
        return "\n".join(_annotations(_redacted(report, redact)))
    from cudaguard.tools.doctor import text
    from cudaguard.tools.layout import Page

    page = Page(sys.stdout, verbose=args.verbose)
    if args.inventory:  # made to be shown to others
        document.inventory(printable_data(_redacted(report, redact)), page)
    else:
        text.write(printable_data(report), page)
    return str(page)


def _report(results: Iterable[CheckResult], found: Mapping[str, Any] | None) -> dict[str, Any]:
    import platform

    import cudaguard
    from cudaguard.tools.doctor.document import document
    from cudaguard.tools.doctor.other_python import command_here

    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "interpreter": sys.executable or "unknown",
    }
    environment["torch"] = "unknown" if found is None else found["torch"].get("version") or "none"
    is_whole = found is not None and "packages" in found
    report = document(results, environment, cudaguard.__version__, found if is_whole else None)
    for check in report["checks"]:
        for finding in check["findings"]:
            finding["command"] = command_here(finding["command"])
    return report


def _redacted(report: dict[str, Any], redact: Redact | None) -> dict[str, Any]:
    from cudaguard.system.redact import redacted
    from cudaguard.tools.doctor.inventory import document as inventory

    if redact is None:
        return report
    found = inventory.redacted(report["inventory"], redact)
    return {**redacted({**report, "inventory": None}, redact), "inventory": found}


def _annotations(report: dict[str, Any]) -> list[str]:
    """Return a workflow command for each finding, and for each check that has failed."""
    from cudaguard.core.checks import BROKEN

    lines = []
    for check in report["checks"]:
        title = f"{check['id']}: {check['title']}"
        if check["status"] == BROKEN:
            lines.append(github("error", check["reason"], title=title))
        for finding in check["findings"]:
            parts = (finding[key] for key in ("what", "consequence", "remedy", "command"))
            told = [finding["what"], *finding["evidence"], *list(parts)[1:]]
            message = "\n".join(filter(None, told))
            lines.append(github(ANNOTATIONS[finding["severity"]], message, title=title))
    return lines


def _redactor(site: Site) -> Redact:
    import platform

    from cudaguard.system.redact import redactor

    homes = [os.path.expanduser("~")]
    try:  # HOME may be set to another folder, as in containers and jobs
        import pwd

        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):  # not POSIX, or a user id without a name
        pass
    return redactor(site.environ, (*homes, *map(os.path.realpath, homes)), platform.node())


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
