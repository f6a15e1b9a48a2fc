"""JSON documents of commands, held against the schema files of the wheel; texts of errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fastjsonschema

import cudaguard

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def toml(path: Path) -> dict[str, Any]:
    """Return what a file has."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


# What each message that is explained looks like, by the id of what explains it.
ERRORS: dict[str, list[str]] = toml(Path(__file__).parents[1] / "docs/errors.toml")
# Messages of reports, logs and grammars, with the ids of what explains them.
SAID = toml(Path(__file__).parent / "tools/incident_messages.toml")
SCHEMAS = Path(cudaguard.__file__).parent / "tools" / "schema"


def valid(command: str, text: str) -> Any:
    """Return the document that `text` is; fails unless it fits the schema of the command."""
    document = json.loads(text)
    assert next(iter(document.items())) == ("schema", 1)
    schema = json.loads((SCHEMAS / f"{command}.json").read_text(encoding="utf-8"))
    return fastjsonschema.validate(schema, document)
