"""Compares data with a JSON schema, and says what is wrong with it in one sentence.

Knows of draft-07 what our own schemas use. Keys that a schema does not have are let be: a later
release may add some.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_LONGEST = 60  # characters of a value that is shown


def misfit(data: object, schema: Schema) -> str:
    """Return where data departs from a schema, what was expected, and what is there; or nothing.

    Args:
        data: As JSON was read.
        schema: With its ``definitions``.
    """
    return next(_misfits(data, schema, "", schema.get("definitions", {})), "")


def _misfits(data: Any, schema: Schema, at: str, known: Schema) -> Iterator[str]:
    if "$ref" in schema:
        schema = known[schema["$ref"].rpartition("/")[2]]
    problem = _expected(data, schema)
    if problem:
        yield f"{at or 'the document'}: expected {problem}, got {_shown(data)}"
        return
    choices = schema.get("oneOf")
    if choices:
        found = [next(_misfits(data, one, at, known), "") for one in choices]
        if all(found):
            yield found[-1]
    if isinstance(data, dict):
        for key in schema.get("required", ()):
            if key not in data:
                yield f"{at or 'the document'}: expected the key {key!r}, got none"
        for key, inner in schema.get("properties", {}).items():
            if key in data:
                yield from _misfits(data[key], inner, f"{at}.{key}" if at else key, known)
    if isinstance(data, list) and "items" in schema:
        for index, item in enumerate(data):
            yield from _misfits(item, schema["items"], f"{at}[{index}]", known)
    for case in schema.get("allOf", ()):
        if not any(_misfits(data, case["if"], at, known)):
            yield from _misfits(data, case["then"], at, known)


def _expected(data: Any, schema: Schema) -> str:
    """Return what a schema expects of a value itself, if it is something else."""
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(data, kind) for kind in kinds):
        return " or ".join(kinds)
    if "const" in schema and not _same(data, schema["const"]):
        return json.dumps(schema["const"])
    if "enum" in schema and not any(_same(data, one) for one in schema["enum"]):
        return f"one of {', '.join(map(json.dumps, schema['enum']))}"
    if isinstance(data, (int, float)):
        least, most = schema.get("minimum", data), schema.get("maximum", data)
        if not least <= data <= most:
            return f"a number from {least} to {most}"
    return ""


def _is(data: object, kind: str) -> bool:
    # True is an integer to Python, and none to JSON.
    return isinstance(data, _TYPES[kind]) and (kind == "boolean" or not isinstance(data, bool))


def _same(data: object, other: object) -> bool:
    return type(data) is type(other) and data == other


def _shown(data: object) -> str:
    if isinstance(data, (dict, list)):
        return "an object" if isinstance(data, dict) else "an array"
    text = json.dumps(data)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
