"""Which modules a file of rules watches, told without parsing TOML: that takes more than a start.

A file that has nothing but ``[[rules]]``, with a key and its value on each line, is read when one
of its modules, or another reason, wakes the guard. Any other wakes it at once: there is more in it,
or it is not as it should be.
"""

import os

from cudaguard.kernel import failures, kernel, start_of

_NEEDED = {"id", "watch", "why"}
_KEYS = {*_NEEDED, "title", "dist", "when", "needs", "actions", "grade", "links", "fixed_in",
         "verified"}  # fmt: skip
_LIMIT = 1 << 20  # bytes
_ELSEWHERE = "provide_libraries"  # asks for something where the watched module is not imported


def names() -> "list[str]":
    """Return what the rules of ``CUDAGUARD_CONFIG`` watch; nothing if it has to be read now."""
    path = os.environ["CUDAGUARD_CONFIG"]
    try:
        kernel.rules_file = os.path.abspath(path)  # the program may go elsewhere
        text = start_of(path).decode("utf-8")
    except failures():
        return []
    rules: list[dict[str, str]] = []
    for line in text.split("\n"):
        key, _, value = map(str.strip, line.partition("="))
        if key == "[[rules]]" and not value:
            rules.append({})
        elif key and key[0] != "#":
            if not rules or key not in _KEYS or key in rules[-1] or not _is_whole(value):
                return []
            rules[-1][key] = value
    if len(text) >= _LIMIT or "\\" in text or _ELSEWHERE in text or path.startswith("~"):
        return []
    if any(_NEEDED - one.keys() or one["id"][1:3].upper() == "CG" for one in rules):
        return []
    quoted = [name.strip() for one in rules for name in one["watch"][1:-1].split(",")]
    found = [name[1:-1] for name in quoted]
    is_usual = all(part.isidentifier() for name in found for part in name.split("."))
    return found if is_usual and quoted == [f'"{name}"' for name in found] else []


def _is_whole(value: str) -> bool:
    """Return True for a text, a list or a table that ends on its line."""
    quotes = value.count('"')
    if value[:1] == '"':
        return quotes == 2 and value[-1] == '"'
    ends = value[:1] + value[1:][-1:]
    pairs = value.count("[") == value.count("]") and value.count("{") == value.count("}")
    return ends in ("[]", "{}") and pairs and quotes % 2 == 0 and "'" not in value
