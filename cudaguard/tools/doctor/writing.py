"""Writes what doctor has found: as text, as data, and as a bundle for an issue.

The text has faults first, the verdict and a command last.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import NamedTuple

from cudaguard.core.checks import BROKEN, FAIL, FAILED_ITSELF, OK, SKIPPED, STATUSES, WARNING
from cudaguard.files.text import printable_data
from cudaguard.model import SEVERITIES
from cudaguard.system import lending
from cudaguard.system.facts import Facts
from cudaguard.system.shareable import shareable
from cudaguard.tools.common import UsageError, json_text, named, save, show
from cudaguard.tools.layout import COLOR, Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, NoReturn

    from cudaguard.core.checks import CheckResult

    Part = Mapping[str, Any]

# --- ``doctor --python``: the same command, run by the interpreter of another environment ---------

OLDEST = (3, 9)
_PATIENCE = 30.0  # seconds for an interpreter to start; a network disk may be slow
_SIGN = "cudaguard "
_ASK = f"import sys; sys.stdout.write({_SIGN!r} + '%d.%d' % sys.version_info[:2])"
_IN_FOLDER = ("bin/python", "bin/python3")


def enter(path: str, arguments: Sequence[str]) -> NoReturn:
    """Become the interpreter of another environment, and run the same command there.

    Args:
        path: The interpreter, its name on PATH, or the folder of an environment.
        arguments: Those of this command line.

    Raises:
        UsageError: That is no interpreter, or it is too old.
    """
    python = _file(path)
    version, said = _version(python)
    if not version:
        raise _not_python(path, said)
    if version < OLDEST:
        has, needs = (".".join(map(str, one)) for one in (version, OLDEST))
        raise UsageError(
            f"--python: {path} is Python {has}. cudaguard needs {needs} or newer there."
        )
    program = lending.visit(path, os.environ)
    try:
        os.execve(python, [python, "-c", program, *arguments], {**os.environ, "CUDAGUARD": "off"})
    except OSError as error:
        raise _not_python(path, error.strerror or str(error)) from None


def _not_python(path: str, said: str) -> UsageError:
    return UsageError(
        f"--python: {path} is not a working Python interpreter: {said}.",
        command=f"{shlex.quote(path)} --version",
    )


def _file(path: str) -> str:
    import shutil

    place = os.path.expanduser(path)
    if os.path.isdir(place):
        for name in _IN_FOLDER:
            if os.path.isfile(os.path.join(place, name)):
                return os.path.abspath(os.path.join(place, name))
        raise UsageError(
            f"--python: {path} is no environment: it has no {_IN_FOLDER[0]}.",
            command=f"ls -a {shlex.quote(path)}",
        )
    found = shutil.which(place)  # a path with a slash is taken as it is
    if found:
        return os.path.abspath(found)  # links are kept: by its path it knows its environment
    quoted = shlex.quote(path)
    if os.path.exists(place):
        raise UsageError(f"--python: {path} cannot be executed.", command=f"ls -l {quoted}")
    raise UsageError(
        f"--python: {quoted} does not exist. Give an interpreter or the folder of a venv."
    )


def _version(file: str) -> tuple[tuple[int, ...], str]:
    """Return the version of an interpreter, or nothing and what it has said instead."""
    from cudaguard.system.child import run_command

    try:
        ended = run_command((file, "-E", "-S", "-c", _ASK), os.environ, _PATIENCE)
    except OSError as error:
        return (), error.strerror or str(error)
    if ended.status is None:
        return (), f"it did not answer within {_PATIENCE:g} s"
    said = ended.output.partition(_SIGN)
    if ended.status or said[0] or not said[2].replace(".", "").isdecimal():
        lines = (ended.errors or ended.output).split("\n")
        return (), next((line.strip() for line in lines if line.strip()), "it says nothing")
    return tuple(map(int, said[2].split("."))), ""


# --- commands that a finding names ---------------------------------------------------------


def command_here(command: str) -> str:
    """Return a command such that it is about the environment that was looked at."""
    parts = command.split(" && ")
    if lending.host and any(map(_NEEDS_GUARD.match, parts)) and not Facts().version("cudaguard"):
        parts.insert(0, "pip install cudaguard")
    return " && ".join(map(_part_here, parts))


def _part_here(part: str) -> str:
    variable, _, rest = part.partition(" ")
    if "=" in variable and rest:
        return f"{variable} {_part_here(rest)}"
    words = part.split(" ", 2)
    python = shlex.quote(sys.executable)
    if words[0] == "pip" and not _is_pip_of_this_python():
        return _pip(python, part[4:])
    if not lending.host:
        return part
    if words[0] == "python":
        return f"{python}{part[6:]}"
    if words[:2] == ["cudaguard", "doctor"]:
        return " ".join(["cudaguard doctor --python", shlex.quote(lending.host), *words[2:]])
    if words[0] == "cudaguard" and words[1:2] and words[1] not in _ANYWHERE:
        return f"{python} -m {part}"
    return part


# Commands of ours that are not about an environment.
_ANYWHERE = ("explain", "rules")
_NEEDS_GUARD = re.compile(r"export CUDAGUARD=|(?:\w+=\S* )*cudaguard (?!doctor|explain|rules)")


def _pip(python: str, arguments: str) -> str:
    import shutil

    from cudaguard.system.torch_build import folder_of

    if not folder_of("pip"):
        if shutil.which("uv"):  # its environments have none
            verb, _, rest = arguments.partition(" ")
            return f"uv pip {verb} --python {python} {rest}".rstrip()
        if folder_of("ensurepip"):
            return f"{python} -m ensurepip && {python} -m pip {arguments}"
    return f"{python} -m pip {arguments}"


def _is_pip_of_this_python() -> bool:
    import shutil
    import sysconfig

    folder = os.path.dirname(os.path.abspath(shutil.which("pip") or ""))
    return folder == os.path.abspath(sysconfig.get_path("scripts"))


_FIRST = (BROKEN, FAIL, WARNING, OK, SKIPPED)
_WIDTH = max(map(len, STATUSES)) + 2
_NOTE, *_FAULTS = SEVERITIES
# Severity -> the word that stands before a finding.
_MARK = dict(zip(SEVERITIES, ("note", "warning", "error")))
# What a line begins with -> its color.
_STYLE: dict[str, str] = dict(zip(STATUSES, ("green", "yellow", "red", "dim", "red")))
_STYLE.update({"": "", _MARK[_NOTE]: COLOR[_NOTE]})
_MOST = 2  # notes, and reasons of what was skipped
_INDENT = 2
_BROKEN = "A broken check is a fault of cudaguard: please report it, with --bundle FILE."


class Look(NamedTuple):
    """Facts about an environment that the report shows besides its checks.

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
    went_well = True
    if args.bundle:
        whole = shareable({**report, "inventory": look.inventory})
        text = bundle(printable_data(whole), json_text(whole))
        went_well = save("doctor", named(args.bundle), text)
    if args.format == "json":
        show(json_text(shareable(report)))
    else:
        page = Page(sys.stdout, verbose=args.verbose)
        lay_out(printable_data(report), page)
        show(str(page))
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
    lay_out(report, page)
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


def lay_out(report: Part, page: Page) -> None:
    """Write the report.

    Args:
        report: As `document` returns it.
        page: Where to; a verbose one gets each check, and all that is known of each note.
    """
    about = (f"{name} {value}" for name, value in report["environment"].items())
    page.add(", ".join((f"cudaguard {report['version']}", *about)))
    page.blank()
    checks = sorted(report["checks"], key=lambda check: _FIRST.index(check["status"]))
    for check in checks:
        if page.verbose or check["status"] not in (OK, SKIPPED):
            _check(check, page)
    if not page.verbose:
        _notes(checks, page)
        fine = sum(check["status"] == OK for check in checks)
        _line(OK, "", _number(fine, "check"), page) if fine else None
        _skipped([check for check in checks if check["status"] == SKIPPED], page)
    page.blank()
    _verdict(report["summary"], checks, page)


def _check(check: Part, page: Page) -> None:
    reason = f" ({check['reason']})" if check["reason"] else ""
    severities = [one["severity"] for one in check["findings"]]
    told = _counted(one for one in severities if page.verbose or one != _NOTE)
    text = f"{check['title']}{': ' * bool(told)}{told}{reason}"
    _line(check["status"], f"{check['id']}  ", text, page)
    for finding in check["findings"]:
        if page.verbose or finding["severity"] != _NOTE:
            severity, named = finding["severity"], {**finding, "what": _named(finding)}
            page.finding(named, f"{_MARK[severity]}: ", _INDENT, mark=COLOR[severity])


def _line(status: str, lead: str, text: str, page: Page) -> None:
    """Add a line that begins with a status."""
    page.add(text, lead=f"{status:<{_WIDTH}}{lead}", mark=_STYLE[status], hanging=_WIDTH)


def _named(finding: Part) -> str:
    rule = f" [{finding['rule']}]" if finding["rule"] else ""
    return f"{finding['what']}{rule}"


def _counted(severities: Iterable[str]) -> str:
    """Return how many findings there are of each kind, the worst first."""
    found = list(severities)
    counts = ((found.count(severity), _MARK[severity]) for severity in reversed(SEVERITIES))
    return ", ".join(_number(count, mark) for count, mark in counts if count)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _notes(checks: Iterable[Part], page: Page) -> None:
    """Add the notes, a line each: one of each check before the second of any."""
    ranked = sorted(_ranked(checks), key=lambda item: item[0])
    shown, more = page.cut(ranked, _MOST)
    for _, id, text in shown:
        _line(_MARK[_NOTE], f"{id}  ", text, page)
    _line("", "", more, page) if more else None


def _ranked(checks: Iterable[Part]) -> Iterator[tuple[int, str, str]]:
    for check in sorted(checks, key=lambda check: str(check["id"])):
        notes = [one for one in check["findings"] if one["severity"] == _NOTE]
        yield from ((rank, check["id"], _named(note)) for rank, note in enumerate(notes))


def _skipped(checks: Sequence[Part], page: Page) -> None:
    """Add one line for all, the reason of most of them first."""
    if not checks:
        return
    ids: dict[str, list[str]] = {}
    for check in checks:
        ids.setdefault(check["reason"], []).append(check["id"])
    groups = sorted(ids.items(), key=lambda item: (-len(item[1]), len(item[0])))
    shown, more = page.cut([f"{reason} ({', '.join(of)})" for reason, of in groups], _MOST)
    text = "; ".join((*shown, *filter(None, [more])))
    _line(SKIPPED, "", f"{_number(len(checks), 'check')}: {text}", page)


def _verdict(summary: Mapping[str, int], checks: Sequence[Part], page: Page) -> None:
    findings = [finding for check in checks for finding in check["findings"]]
    faults = [one for one in findings if one["severity"] in _FAULTS]
    made = sum(summary.values()) - summary[BROKEN] - summary[SKIPPED]
    broken = f"; {_number(summary[BROKEN], 'check')} could not be made" * bool(summary[BROKEN])
    told = _counted(one["severity"] for one in faults) or "no faults found"
    worst = max((SEVERITIES.index(one["severity"]) for one in faults), default=0)
    style = COLOR[SEVERITIES[worst]] if worst else "red" if summary[BROKEN] else "green"
    page.add(f"{told} in {_number(made, 'check')}{broken}", style=style)
    if any(check["reason"].startswith(FAILED_ITSELF) for check in checks):
        page.add(_BROKEN)
    faults.sort(key=lambda one: -SEVERITIES.index(one["severity"]))
    command = next((one["command"] for one in faults if one["command"]), "")
    if command:
        page.labeled("run", command, 0)
