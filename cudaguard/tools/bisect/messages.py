"""What `cudaguard bisect` has found, in words, and as a rule."""

from __future__ import annotations

import json
import shlex

from cudaguard.system.shareable import program_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.tools.layout import Page

LONGEST_LIST = 8  # modules named in one sentence
_INDENT = 2
_LABEL = 7  # columns of a label
_UNEXPLAINED = ("unexplained", "together")  # verdicts without an order that works


def failure_words(kind: str, text: str) -> str:
    """Return how it fails, as the end of a sentence; see `cudaguard.system.child.Failure`."""
    return {
        "": "works",
        "hang": "does not end within the time limit",
        "signal": f"crashes with {text}",
        "error": f"fails with {text}",
        "exit": f"ends with status {text}",
    }[kind]


def headline(document: Mapping[str, Any]) -> str:
    """Return what was found, in one sentence."""
    name = " ".join(document["program"]) or "Python"
    verdict = document["verdict"]
    if verdict == "works":
        return f"{name} does not fail here: there is nothing to look for."
    fails = f"{name} {failure_words(**document['failure'])}"
    first, then, failing = (_listed(document[key]) for key in ("first", "then", "failing"))
    if verdict == "order" and not document["then"]:
        return f"{fails} unless {first} {_is(document['first'])} imported first of all."
    if verdict == "order":
        return f"{fails} when {then} {_is(document['then'])} imported before {first}."
    if verdict == "needs":
        return f"{fails} unless {first} {_is(document['first'])} imported before {then}."
    if verdict == "together" and len(document["failing"]) == 1:
        return (
            f"{fails} when {failing} is imported, whatever is imported first. Import order is not "
            "the cause: reinstall or rebuild it."
        )
    if verdict == "together":
        return f"{fails} when {failing} are imported; no order was found that works."
    if verdict == "by-chance":
        return f"{fails}, but one order has both failed and worked: it fails by chance. Try -n 5."
    if not document["imports"]:
        return f"{fails}, and makes no imports whose order could be the cause."
    return f"{fails} in every order that was tried: no order of imports cures it."


def write(document: Mapping[str, Any], page: Page) -> None:
    """Write the report: the verdict, what shows it, the next step."""
    page.add(headline(document), style="green" if document["verdict"] == "works" else "bold")
    page.blank()
    rule = document["rule"]
    versions = (f"{name} {version}" for name, version in document["versions"].items())
    lists = (("fails", document["failing"]), ("works", document["working"]), ("with", versions))
    said, more = page.cut(document["evidence"])
    lines = [(label, ", ".join(names), "") for label, names in lists]
    lines += [("says", "", line) for line in said]  # verbatim, so that a search finds it
    found = [line for line in (*lines, ("", more, "")) if line[1] or line[2]]
    for label, text, whole in found:
        lead = f"{f'{label}:' if label else '':<{_LABEL}}"
        page.add(text, _INDENT, lead=lead, whole=whole, hanging=_LABEL)
    if found:
        page.blank()
    for remark in _remarks(document):
        page.add(remark)
    if rule:
        page.blank()
        page.add("The rule, for a cudaguard.toml:")
        page.blank()
        page.block(rule["toml"].rstrip(), 2 * _INDENT)
    if document["command"]:
        page.blank()
        page.labeled("run", document["command"], 0)


def _remarks(document: Mapping[str, Any]) -> Iterable[str]:
    runs = f"{document['runs']} run{'' if document['runs'] == 1 else 's'}"
    runs += f" in {document['seconds']:.1f} s"
    if document["unsure"]:
        runs += f", {document['unsure']} of which failed in another way"
    yield f"{runs}."
    name = " ".join(document["program"])
    if document["working"] and document["program_works"] is False:
        yield (
            f"With that order {name} does not fail in this way, but does not end well either: "
            "bisect again once the order is changed."
        )
    elif document["working"] and document["program_works"]:
        yield f"With that order in front, {name} works."
    guard, rule = document["guard"], document["rule"]
    if guard and guard["cures"] and guard["rules"]:
        yield (
            f"The guard cures it already: {_listed(guard['rules'])}. Start the program with "
            "`cudaguard run`, or set CUDAGUARD=fix."
            + (" The rule below is not needed then." if rule else "")
        )
    elif guard and guard["cures"]:
        yield "It does not fail under the guard (`cudaguard run`), though no rule says why."
    elif guard:
        yield "It fails under the guard as well: no rule that is in force cures it."
    if rule and rule["cures"]:
        yield "The rule below cures it: it does not fail under the guard with that rule."
    elif rule and rule["cures"] is False:
        yield "The rule below was tried, and does not cure it: change the order in the program."


def next_command(document: Mapping[str, Any], limit: float) -> str:
    """Return the command to run next; empty if there is none. A hang is what takes `limit` s."""
    program = shlex.join(document["program"])
    what = program or f"--imports {','.join(document['imports'])}"
    if document["verdict"] == "by-chance":
        return f"cudaguard bisect -n 5 {what}"
    if document["guard"] and document["guard"]["cures"]:
        return f"cudaguard run {program}" if program else "cudaguard doctor"
    if document["rule"] and document["rule"]["cures"]:
        return f"cudaguard bisect -o cudaguard.toml {what}"
    is_known = document["verdict"] not in _UNEXPLAINED or len(document["failing"]) == 1
    if not program or is_known:
        return ""
    if document["failure"]["kind"] == "hang":  # with a limit, it says where and for what it waits
        return f"cudaguard run --timeout {max(limit, 1):.0f} {program}"
    return f"cudaguard run {program}"


def rule_of(document: Mapping[str, Any], day: str) -> tuple[str, str]:
    """Return the id of the rule that keeps the order, and the text of its configuration file."""
    first, then = document["first"], document["then"]
    shown = "-".join((*first, "before", *then)).upper()
    id = "".join(sign if sign.isalnum() else "-" for sign in f"LOCAL-{shown}")
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    found = {**document, "program": program_alone(document["program"])}
    fields = {
        "id": id,
        "watch": list(then),
        "needs": list(first),
        "title": f"{_listed(first)} before {_listed(then)}",
        "why": f"Found by cudaguard bisect: {headline(found)}",
        "verified": f"{day}: {versions}" if versions else day,
    }
    # JSON escapes the same characters as TOML's basic strings do, but for one.
    values = {key: json.dumps(value, ensure_ascii=False) for key, value in fields.items()}
    lines = (f"{key} = {value}\n" for key, value in values.items())
    return id, "[[rules]]\n" + "".join(lines).replace("\x7f", "\\u007F")


def _listed(names: Sequence[str]) -> str:
    if len(names) > LONGEST_LIST:
        names = [*names[:LONGEST_LIST], f"{len(names) - LONGEST_LIST} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def _is(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"
