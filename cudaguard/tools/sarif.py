"""Findings as SARIF 2.1.0, which GitHub code scanning and other viewers read.

GitHub refuses a result without a file. What is found in an environment stands at the file that
declares the environment, which is where a pin is changed (`_declaration`).
"""

from __future__ import annotations

import os

from cudaguard.tools.common import plain_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

FORMAT = "sarif"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"  # the checkout, to those who read the document
LEVELS = {"info": "note", "warning": "warning", "error": "error"}
DECLARATIONS = (
    "pyproject.toml", "requirements.txt", "environment.yml", "environment.yaml", "setup.cfg",
    "setup.py",
)  # fmt: skip


def of_lint(findings: Iterable[Mapping[str, Any]]) -> str:
    """Return the document of what `cudaguard lint` found, as its JSON document has it."""
    results, rules = [], {}
    for one in findings:
        rules[one["rule"]] = _rule(one["rule"], one["why"], one["links"])
        cell = f"cell {one['cell']}, line {one['line']}: " if one["cell"] else ""
        by = one["command"] or one["reason"]
        text = [f"{cell}{one['what']}", one["why"], "write:", *one["write"], one["sorters"], by]
        needed = _located(one["path"], one["needed"])
        needed["message"] = {"text": f"{one['needed']['module']} must be imported first"}
        result = _result(one["rule"], "error", text, _located(one["path"], one))
        results.append({**result, "relatedLocations": [{"id": 0, **needed}]})
    return _document("lint", rules, results)


def of_extensions(checks: Iterable[Mapping[str, Any]]) -> str:
    """Return the document of what `cudaguard check-extension` found, as its JSON has it."""
    results, rules = [], {}
    for one in checks:
        for gpu in (gpu for gpu in one["gpus"] if gpu["ok"] is False):
            id = f"no-code-for-{gpu['gpu']}"
            rules[id] = _rule(id, f"GPU code for {gpu['gpu']}")
            place, print = _located(one["path"]), _print(id, one["path"])
            results.append(_result(id, "error", [gpu["message"]], place, print))
        if one["ok"]:
            continue
        id = one["cause"] or "unknown"
        rules[id] = _rule(id, f"compiled extension: {id}")
        level = "error" if one["ok"] is False else "warning"
        text = [one["message"], one["remedy"]]
        results.append(_result(id, level, text, _located(one["path"]), _print(id, one["path"])))
    return _document("check-extension", rules, results)


def of_doctor(report: Mapping[str, Any]) -> str:
    """Return the document of a report of `cudaguard doctor`, as its JSON document has it."""
    from cudaguard.core.checks import BROKEN

    results, rules, failed = [], {}, []
    place = _located(_declaration())
    for check in report["checks"]:
        id = check["id"]
        rules[id] = _rule(id, check["title"])
        if check["status"] == BROKEN:
            failed.append(f"{id}: {check['reason']}")
        for one in check["findings"]:
            text = [one["what"], *one["evidence"], one["consequence"], one["remedy"]]
            text.append(f"run: {one['command']}" if one["command"] else "")
            what = {"logicalLocations": [{"name": check["title"], "kind": "environment"}]}
            result = _result(
                id, LEVELS[one["severity"]], text, {**place, **what}, _print(id, one["what"])
            )
            results.append(result)
    return _document("doctor", rules, results, failed)


def _document(
    tool: str,
    rules: Mapping[str, dict[str, Any]],
    results: Iterable[dict[str, Any]],
    failed: Iterable[str] = (),
) -> str:
    import cudaguard

    index = {id: number for number, id in enumerate(rules)}
    notes = [{"level": "error", "message": {"text": text}} for text in failed]
    run = {
        "tool": {
            "driver": {
                "name": f"cudaguard {tool}",
                "version": cudaguard.__version__,
                "rules": list(rules.values()),
            }
        },
        "automationDetails": {"id": f"cudaguard-{tool}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not notes, "toolExecutionNotifications": notes}],
        "results": [{**result, "ruleIndex": index[result["ruleId"]]} for result in results],
    }
    return plain_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(id: str, text: str, links: Iterable[str] = ()) -> dict[str, Any]:
    explained = f"\nrun: cudaguard explain {id}" if id.startswith("CG") else ""
    rule = {"id": id, "shortDescription": {"text": text}, "help": {"text": f"{text}{explained}"}}
    link = next(iter(links), "")
    return {**rule, "helpUri": link} if link else rule


def _result(
    rule: str, level: str, text: Iterable[str], location: dict[str, Any], print: str = ""
) -> dict[str, Any]:
    result = {
        "ruleId": rule,
        "level": level,
        "message": {"text": "\n".join(filter(None, text))},
        "locations": [location],
    }
    return (
        {**result, "partialFingerprints": {"primaryLocationLineHash": print}} if print else result
    )


def _print(*parts: str) -> str:
    """Return what tells one result from others.

    GitHub makes it of the line, which is the same for all that is found in an environment.
    """
    import hashlib

    return f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}:1"


def _located(path: str, place: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return a location in a file; its first line for what has no lines, as a cell or a library."""
    region = {"startLine": 1}
    if place and not place["cell"]:
        region = {
            "startLine": place["line"],
            "startColumn": place["column"],
            "endColumn": place["end_column"],
        }
    return {"physicalLocation": {"artifactLocation": _artifact(path), "region": region}}


def _artifact(path: str) -> dict[str, str]:
    """Return the address of a file: relative to the working folder for what is below it."""
    from urllib.parse import quote

    path = os.path.abspath(path)
    inner = os.path.relpath(path)
    if inner.split(os.sep)[0] == os.pardir:
        return {"uri": f"file://{quote(os.fsencode(path))}"}
    return {"uri": quote(os.fsencode(inner.replace(os.sep, "/"))), "uriBaseId": ROOT}


def _declaration() -> str:
    """Return the file that declares the packages of the environment."""
    return next((name for name in DECLARATIONS if os.path.isfile(name)), DECLARATIONS[0])
