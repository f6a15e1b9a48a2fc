"""A finding as text, for warnings, log records and terminals."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding


def render(finding: Finding) -> str:
    """Return the finding as a headline and labelled lines; empty fields are left out."""
    lines = [f"[{finding.id}] {finding.what}"]
    lines += [f"  evidence: {item}" for item in finding.evidence]
    for label, value in (
        ("consequence", finding.consequence),
        ("remedy", finding.remedy),
        ("try", finding.command),
        ("see", finding.links[0] if finding.links else ""),
    ):
        if value:
            lines.append(f"  {label}: {value}")
    return "\n".join(lines)
