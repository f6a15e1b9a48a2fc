"""Explain an error message, or the id of a rule or finding, and what to do about it."""

from __future__ import annotations

import os
import re
import shlex
import sys

from cudaguard import api  # noqa: F401  # hands the features to the core
from cudaguard.core import explain as texts
from cudaguard.core.findings import Finding, of_rule, switch_off
from cudaguard.core.known_errors import of_texts, parts
from cudaguard.core.lifecycle import activation
from cudaguard.core.rule_check import toml_text
from cudaguard.core.table import table
from cudaguard.files import read_start
from cudaguard.files.layout import COLOR, Page
from cudaguard.files.text import closest_id, same_id
from cudaguard.model import TYPE_CHECKING
from cudaguard.tools.common import FOUND, OK, USAGE, UsageError, add_format, json_text, note, show
from cudaguard.tools.doctor.checks import CHECKS, all_rules, check_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cudaguard.core.rule import Rule

_ID = re.compile(r"[A-Za-z][A-Za-z-]{0,40}\d[\w-]{0,10}")
_FILE = re.compile(r"[\w./~-]{0,200}\.(?:log|txt|out|err)")  # what can be nothing else


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "about", nargs="*", metavar="TEXT", help="a message, an id, a file, or - for stdin"
    )
    add_format(parser)


def execute(args: Namespace) -> int:
    """Explain, and return the exit status."""
    text, data = " ".join(args.about), b""
    if text == "-" or not (args.about or sys.stdin is None or sys.stdin.isatty()):
        data = sys.stdin.buffer.read()
    elif os.path.isfile(text):
        data = read_start(text, 1 << 30)
    if data:  # whatever a program says, in whatever encoding; PowerShell's files are in UTF-16
        is_utf_16 = data[:2] == b"\xff\xfe" and b"\0" in data
        text = data.decode("utf-16" if is_utf_16 else "utf-8", "replace")
    elif not text or text == "-":
        raise UsageError("no text, and standard input is empty", status=FOUND if text else USAGE)
    elif _FILE.fullmatch(text):
        raise UsageError(f"{text}: there is no such file")
    typed = parts()["typed"].items()
    whole = (form.format(text) for form, (one,) in typed if re.fullmatch(one, text.strip()))
    finding = explain(text) or next(filter(None, map(explain, whole)), None)
    is_id, found = _ID.fullmatch(text.strip()), None
    if finding is None:
        rules = activation.every_rule() if is_id else {}
        if id := same_id(text.strip(), rules):
            finding = _about_rule(rules[id])
    if finding is None:
        near = [(closest_id(text, (*ids(), *rules)), "")] if is_id else texts.closest(text)
        command = f"cudaguard explain {near[0][0]}" if near and near[0][0] else ""
    else:
        command, programs = finding.command, of_texts("program").findall(text)
        if "SCRIPT" in command.split() and programs:  # a traceback in the text names it
            path = programs[-1].removeprefix(os.getcwd() + os.sep)
            command = command.replace("SCRIPT", shlex.quote(path))
        # Nothing that can be pasted, or what has just been done.
        if {"FILE", "SCRIPT"} & {*command.split()} or command == f"cudaguard explain {finding.id}":
            command = ""
        found = {**finding.to_dict(), "command": command}
    if args.format == "json":
        show(json_text({"tool": "explain", "finding": found, "command": command}))
    elif finding is not None and found is not None:
        page = Page(sys.stdout, verbose=args.verbose)
        page.finding(found, f"[{finding.id}] ", mark=COLOR[finding.severity])
        show(str(page))
    elif is_id:
        note("explain", f"there is no id {text.strip()!r}", command or "cudaguard rules list")
    else:
        told = "; ".join(f'{id} "{title}"' for id, title in near)
        said = f"no match; closest: {told}" if told else "no match: nothing in it is known"
        note("explain", said, command or "cudaguard doctor")
    return FOUND if finding is None else OK


# --- What a message, an error or an id means ------------------------------------------------------

RULES = table.rules()


def explain(about: BaseException | str) -> Finding | None:
    """Return what an error, its text, or the id of a rule or finding means; None if not known.

    Args:
        about: An exception, with those that led to it; the text of a message, a whole log included;
            an id, as in ``CG001``; or the address of a report that an entry links.
    """
    is_guarded = activation.core.is_installed
    if isinstance(about, BaseException):
        finding = texts.explain_error(about, is_guarded=is_guarded)
        return None if finding is None else texts.in_this_process(finding)[0] or finding
    if not isinstance(about, str):
        raise TypeError(f"explain() takes an error, a text or an id, not {type(about).__name__}")
    id = about.strip()
    if len(id) <= 200:
        linked = {link: one.id for one in texts.known_errors() for link in one.links}
        if id := same_id(id, ids()) or linked.get(id, ""):
            return _explain_id(id)
    text = about.replace("%20", " ")  # out of an address
    return texts.explain_text(text, is_guarded=is_guarded)


def ids() -> tuple[str, ...]:
    """Return every id that can be explained."""
    errors = (one.id for one in texts.known_errors())
    return tuple(sorted({*all_rules(), *errors, *CHECKS, *table.index.IDS}))


def _explain_id(id: str) -> Finding | None:
    if (rule := all_rules().get(id)) is not None:
        return _about_rule(rule)
    if id in CHECKS:
        check = check_of(id)
        return Finding(
            id,
            f"A check of cudaguard doctor: {check.title}.",
            severity="info",
            evidence=(check.about,),
            remedy="run the check on this machine",
            command=f"cudaguard doctor --only {id} -v",
        )
    errors = (one for one in texts.known_errors() if one.id == id)
    known = next(errors, None) or table.kind(id)
    return None if known is None else known.about()


def _about_rule(rule: Rule) -> Finding:
    seen = f"reproduced {rule.verified}" if rule.verified else "reported, not reproduced"
    off = switch_off(rule.id)
    remedies = {
        "opt-in": f"switch it on with install(enable=[{rule.id!r}]) or CUDAGUARD_RULES=+{rule.id}",
        "automatic": f"start the program with CUDAGUARD=fix; or switch it off: {off}",
    }
    return of_rule(
        rule,
        f"{rule.title}." if rule.title else f"A rule about {', '.join(rule.watch)}.",
        f"grade {rule.grade}; {seen}",
        f"fixed in {rule.fixed_in}" if rule.fixed_in else "",
        f"watches {', '.join(rule.watch)}",
        f"applies to {', '.join(rule.dist)}" if rule.dist else "",
        f"applies when {toml_text(rule.when)}" if rule.when else "",
        f"needs {', '.join(rule.needs)} first" if rule.needs else "",
        *(f"does {toml_text(action)}" for action in rule.actions),
        severity="info",
        remedy=remedies.get(rule.grade, f"silence it: {off}"),
    )
