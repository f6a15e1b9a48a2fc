"""docs/reference/json.md: the keys of all JSON documents, from the schema files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from _generate import ROOT
from _generate.markdown import code, plain, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMAS = ROOT / "cudaguard" / "tools" / "schema"
_ELSEWHERE = {"actions": "see [rules](rules.md)"}  # what has a page of its own


def documents() -> str:
    """Return a table of keys for each document."""
    return "\n".join(_document(path.name) for path in sorted(SCHEMAS.glob("*.json")))


def _document(name: str) -> str:
    schema = json.loads((SCHEMAS / name).read_text(encoding="utf-8"))
    parts = [f"## {plain(schema['title'])}\n\n`cudaguard/tools/schema/{name}`\n"]
    for one in schema.get("oneOf", [schema]):
        tool = _tool(one)
        if "oneOf" in schema and tool:
            parts.append(f"{tool}:\n")
        rows = list(_keys(one, "", schema))
        parts.append(table_of(("key", "type", "meaning"), rows))
    return "\n".join(parts)


def _tool(schema: dict[str, Any]) -> str:
    told = schema.get("properties", {}).get("tool", {})
    names = told.get("enum", [told["const"]] if "const" in told else [])
    return ", ".join(map(code, names))


def _keys(schema: dict[str, Any], above: str, whole: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    required = set(schema.get("required", ()))
    for key, given in schema.get("properties", {}).items():
        one = _resolved(given, whole)
        name = f"{above}{key}"
        kind = _type(one, whole)
        if key not in required:
            kind = f"{kind}, may be absent"
        elsewhere = _ELSEWHERE.get(key, "")
        yield code(name), kind, elsewhere or plain(one.get("description", ""))
        if elsewhere:
            continue
        for inner, suffix in _inner(one, whole):
            yield from _keys(inner, f"{name}{suffix}.", whole)


def _inner(schema: dict[str, Any], whole: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the objects that are below a key, with what stands for the place in a list."""
    for one in (_resolved(part, whole) for part in schema.get("oneOf", [schema])):
        if "properties" in one:
            yield one, ""
        items = _resolved(one.get("items", {}), whole)
        if "properties" in items:
            yield items, "[]"
        further = one.get("additionalProperties")
        if isinstance(further, dict):
            below = _resolved(further, whole)
            if "properties" in below:
                yield below, ".NAME"


def _resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema, or the one that it refers to."""
    address = schema.get("$ref", "")
    if not address:
        return schema
    found = whole
    for key in address.removeprefix("#/").split("/"):
        found = found[key]
    return {**found, **{key: value for key, value in schema.items() if key != "$ref"}}


def _type(schema: dict[str, Any], whole: dict[str, Any]) -> str:
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    if "oneOf" in schema or "anyOf" in schema:
        kinds = (
            _type(_resolved(one, whole), whole)
            for one in schema.get("oneOf", schema.get("anyOf", ()))
        )
        return " or ".join(dict.fromkeys(kinds))
    kinds = schema.get("type", "any")
    text = kinds if isinstance(kinds, str) else " or ".join(kinds)
    if text == "array" and "items" in schema:
        return f"array of {_type(_resolved(schema['items'], whole), whole)}"
    return text
