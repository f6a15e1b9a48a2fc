"""JSON documents of commands, held against the schema files that the wheel ships."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastjsonschema

import cudaguard

SCHEMAS = Path(cudaguard.__file__).parent / "tools" / "schema"


def valid(command: str, text: str) -> Any:
    """Return the document that `text` is; fails unless it fits the schema of the command."""
    document = json.loads(text)
    assert next(iter(document.items())) == ("schema", 1)
    schema = json.loads((SCHEMAS / f"{command}.json").read_text(encoding="utf-8"))
    return fastjsonschema.validate(schema, document)
