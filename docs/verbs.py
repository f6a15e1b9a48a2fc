"""Write what the declared verbs are into the reference and into the JSON schema of rules.

Run ``python docs/verbs.py`` after a change of a ``verbs.py``; a test tells where it was forgotten.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudaguard.core.verbs import declared, toml_text
from cudaguard.model import GRADES
from cudaguard.tools import catalog

if TYPE_CHECKING:
    from cudaguard.core.verbs import Verb

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference" / "rules.md"
SCHEMA = ROOT / "cudaguard" / "tools" / "schema" / "rules.json"
BEGIN = "<!-- verbs: written by docs/verbs.py -->\n"
END = "<!-- end of verbs -->\n"


def _row(verb: Verb) -> str:
    example: dict[str, Any] = {verb.name: verb.example}
    example.update((item.name, item.example) for item in verb.parameters if item.required)
    takes = [verb.kind.expected]
    takes += [
        f"`{item.name}`: {item.kind.expected}{'' if item.required else ' (optional)'}"
        for item in verb.parameters
    ]
    grade = "any" if verb.grades == GRADES else ", ".join(f"`{name}`" for name in verb.grades)
    meaning = re.sub(
        r"[\w.]*_[\w.]*\w", r"`\g<0>`", verb.meaning
    )  # what Markdown would take for its own
    return f"| `{verb.name}` | {'; '.join(takes)} | {grade} | {meaning} | `{toml_text(example)}` |"


def table() -> str:
    """Return the verbs as a table in Markdown."""
    head = (
        "| verb | value; parameters | grade | what the guard does | example |",
        "|---" * 5 + "|",
    )
    return "\n".join((*head, *map(_row, declared().values()), ""))


def schema() -> dict[str, Any]:
    """Return the JSON schema of one action."""
    return {
        "oneOf": [
            {
                "description": verb.meaning,
                "type": "object",
                "additionalProperties": False,
                "required": [verb.name, *(p.name for p in verb.parameters if p.required)],
                "properties": {
                    verb.name: dict(verb.kind.schema),
                    **{item.name: dict(item.kind.schema) for item in verb.parameters},
                },
            }
            for verb in declared().values()
        ]
    }


def documents() -> dict[Path, str]:
    """Return the files with the declarations in them, as they should be."""
    assert catalog.VERBS  # it knows who declares verbs
    before, _, rest = REFERENCE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    rules = json.loads(SCHEMA.read_text(encoding="utf-8"))
    fields = rules["oneOf"][0]["properties"]["rules"]["items"]["properties"]
    fields["actions"] = {"type": "array", "items": schema()}
    return {
        REFERENCE: f"{before}{BEGIN}{table()}{END}{after}",
        SCHEMA: json.dumps(rules, indent=2, ensure_ascii=False) + "\n",
    }


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
