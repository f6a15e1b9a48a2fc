"""docs/troubleshooting.md: one entry for each message that cudaguard can explain."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import cudaguard
from _generate import DOCS
from _generate.markdown import code, plain, table_of
from cudaguard.core.explain import known_errors
from cudaguard.core.table import table
from cudaguard.tools.doctor.checks import check_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from cudaguard import Finding
    from cudaguard.core.known_errors import KnownError

MESSAGES = tomllib.loads((DOCS / "errors.toml").read_text(encoding="utf-8"))
# What a reader sees, and the page about it.
SYMPTOMS = {
    "A crash or damaged memory after an import": "howto/segfaults.md",
    "A death without a message, and errors of kernels and GPU memory": "howto/segfaults.md",
    "`undefined symbol`": "howto/undefined-symbol.md",
    "`cannot open shared object file`, and versions that are not found": "howto/extensions.md",
    "Two packages that do not fit": "howto/extensions.md",
    "Two copies of one library": "howto/extensions.md",
    "Windows": "howto/extensions.md",
    "A package that must be imported first": "reference/commands/lint.md",
    "CUDA in forked processes, threads and contexts": "howto/cuda.md",
    "A GPU that a compiler does not know": "howto/new-gpu.md",
    "The NVIDIA driver": "reference/commands/doctor.md",
    "Statuses of CUDA's libraries, and parts of messages": "reference/commands/explain.md",
    "Arrays between libraries": "howto/arrays.md",
    "CUDA graphs": "howto/graphs.md",
    "Builds of extensions": "howto/builds.md",
}
# Pages about one message.
PAGES = {
    "CG739": "howto/isaac-sim.md",
    "CG741": "howto/isaac-sim.md",
    "CG736": "howto/isaac-sim.md",
    "CG878": "tutorial.md",
    "CG818": "howto/fork.md",
    "CG822": "howto/fork.md",
    "CG880": "howto/dali.md",
    "CG743": "explanation/costs-and-limits.md",
    "CG744": "explanation/costs-and-limits.md",
    "CG745": "explanation/costs-and-limits.md",
}
_RULE = re.compile(r"\bCG[0-6]\d\d\b")
_CHECK = re.compile(r"\bCG9\d\d\b")


def errors() -> str:
    """Return an entry for each message, by what a reader sees."""
    parts = []
    known = known_errors()
    strange = {one.symptom for one in known} - set(SYMPTOMS)
    if strange:
        raise SystemExit("\n  ".join((f"no such symptom: {strange}; there are", *SYMPTOMS)))
    bare = {one.id for one in known} - MESSAGES.keys()
    if bare:
        raise SystemExit(f"docs/errors.toml has no message of {', '.join(sorted(bare))}")
    for title, page in SYMPTOMS.items():
        entries = [_entry(one, PAGES.get(one.id, page)) for one in known if one.symptom == title]
        if entries:
            parts.append(f"### {title}\n\n" + "\n".join(entries))
    return "\n".join(parts)


def _entry(one: KnownError, page: str) -> str:
    usual, *others = MESSAGES[one.id]
    # A program that prints it has no guard.
    finding = cudaguard.explain(usual)
    if finding is None or finding.id != one.id:
        raise SystemExit(f"{one.id}: its first message is explained by {finding}")
    lines = [f"#### {code(usual.splitlines()[-1].strip())}", ""]
    if "\n" in usual:
        lines += ["```text", *usual.splitlines(), "```", ""]
    if others:
        lines += [*(f"- {code(text)}" for text in others), ""]
    cause = f"{finding.what} {_sentence(finding.consequence)}".strip()
    lines += [plain(cause), "", f"*Fix:* {plain(_sentence(finding.remedy))}", ""]
    lines += [_further(one, finding, page), ""]
    return "\n".join(lines)


def _further(one: KnownError, finding: Finding, page: str) -> str:
    """Return the command, the page, and which rules and checks are about it."""
    said = f"{one.what} {one.consequence} {one.remedy} {one.unguarded} {one.command} {one.nouns}"
    links = [f"[{_title(page)}]({page})", f"{one.id}"]
    links += [f"rule [{id}](reference/catalog.md)" for id in _found(_RULE, said)]
    links += [
        f"check [{id}](reference/commands/doctor.md), {check_of(id).title}"
        for id in _found(_CHECK, said)
    ]
    run = f"*Run:* {code(finding.command)}\n\n" if finding.command else ""
    return f"{run}*See:* {'; '.join(links)}"


def _found(pattern: re.Pattern[str], text: str) -> list[str]:
    return list(dict.fromkeys(pattern.findall(text)))


def _title(page: str) -> str:
    """Return the title of a page."""
    return (DOCS / page).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def _sentence(text: str) -> str:
    text = text.strip()
    if not text:
        return ""
    end = "" if text.endswith(".") else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


def warnings() -> str:
    """Return what to do about each warning of cudaguard that is no message of others."""
    rows = []
    texts = {known.id for known in known_errors()}  # have an entry of their own
    for id in sorted(table.index.IDS):
        kind = table.kind(id)
        if kind is not None and kind.page and id not in texts:
            page = f"[{_title(kind.page)}]({kind.page})"
            rows.append((f"`[{id}]`", plain(kind.title), plain(kind.remedy), page))
    return table_of(("warning", "what was found", "what to do", "page"), rows)
