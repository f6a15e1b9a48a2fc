"""The wording of ``cudaguard rules test``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

VERDICTS = {
    "needed": "still needed, and it cures",
    "not-needed": "not needed with these releases: all is well without the guard",
    "not-cured": "NOT cured: it fails with the guard too",
    "not-run": "not known",
}


def text(document: Mapping[str, Any]) -> str:
    """Return the outcome for a terminal, its headline first.

    Args:
        document: As the schema ``rules.json`` has it, of the command ``rules test``.
    """
    lines = [f"{document['rule']}: {document['title']}"]
    if document["verdict"] == "not-run":
        lines.append(f"  not run: {document['reason']}")
        return "\n".join(lines)
    told = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines.append(f"  with: {told}; Python {document['python']}")
    for key, name in (("unguarded", "without the guard"), ("guarded", "with the guard")):
        half = document[key]
        word = "works" if half["works"] else f"fails, {half['ending']}"
        lines.append(f"  {name}: {word}")
        lines += [f"      {line}" for line in half["output"]]
    lines.append(f"  result: {VERDICTS[document['verdict']]}")
    return "\n".join(lines)
