"""Findings as a small HTML table, in the words that they have everywhere; as text in a terminal."""

from __future__ import annotations

from html import escape

from cudaguard.files.text import printable, printable_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudaguard.model import Finding, Status

COLUMNS = ("finding", "what", "remedy", "run")
# Jupyter aligns cells to the right, and shows no line breaks. Colors are those of its theme.
_CELL = ' style="text-align: left; vertical-align: top; white-space: pre-wrap"'
_HEAD = ' style="text-align: left"'


class NotebookTable:
    """What a cell displays: a table in a notebook, the same as text in a terminal.

    Args:
        findings: What is shown.
        headline: Lines that stand above it.
    """

    def __init__(self, findings: Iterable[Finding], headline: Sequence[str] = ()) -> None:
        self._findings, self._headline = tuple(findings), tuple(headline)

    def __repr__(self) -> str:
        """Return the text form."""
        return "\n".join((*map(printable, self._headline), *map(str, self._findings)))

    def _repr_html_(self) -> str:
        """Return the table; whatever is from outside is escaped."""
        parts = ["<div>", *(f"{_escaped(line)}<br>" for line in self._headline)]
        if self._findings:
            has_command = any(finding.command for finding in self._findings)
            columns = COLUMNS if has_command else COLUMNS[:-1]
            head = "".join(f"<th{_HEAD}>{name}</th>" for name in columns)
            rows = "".join(
                f"<tr>{''.join(f'<td{_CELL}>{cell}</td>' for cell in cells)}</tr>"
                for cells in (_cells(finding)[: len(columns)] for finding in self._findings)
            )
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
        return "".join((*parts, "</div>"))


def of_status(status: Status) -> NotebookTable:
    """Return the mode, what was changed, and what was found."""
    head, *changes = str(status.replace(findings=())).split("\n")
    return NotebookTable(status.findings, (head, *changes))


def _cells(finding: Finding) -> tuple[str, ...]:
    """Return what stands in the columns."""
    what = [_escaped(finding.what)]
    if finding.consequence:
        what.append(f"consequence: {_escaped(finding.consequence)}")
    evidence = "<br>".join(map(_escaped, finding.evidence))
    return (
        f"<b>{_escaped(finding.id)}</b><br>{_escaped(finding.severity)}",
        "<br>".join(what)
        + (f"<details><summary>evidence</summary>{evidence}</details>" if evidence else ""),
        _escaped(finding.remedy) + _link(finding),
        f"<code>{_escaped(finding.command)}</code>" if finding.command else "",
    )


def _link(finding: Finding) -> str:
    link = finding.links[0] if finding.links else ""
    if not link.startswith(("https://", "http://")):  # a rule of somebody else's may say anything
        return f"<br>see: {_escaped(link)}" if link else ""
    return f'<br>see: <a href="{_escaped(link)}" target="_blank">{_escaped(link)}</a>'


def _escaped(text: str) -> str:
    # MathJax reads what is between dollar signs.
    return escape(printable_part(text)).replace("$", "&#36;<wbr>")
