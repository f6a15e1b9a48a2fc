"""Lines on which the regular expressions of the package take longest, and a program that runs them.

The lines are made from a pattern's own parse tree: whatever can repeat is repeated, alone and
after everything that may come before it, so that the rest of the pattern fails on it.

    python tests/attacks.py

prints the patterns that need longer than `LIMIT` for lines of `SIZE` characters, as JSON.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

warnings.simplefilter("ignore", DeprecationWarning)
try:
    from re import _parser as parser  # Python 3.11 and later
except ImportError:
    import sre_parse as parser  # type: ignore[no-redef]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LIMIT = 10  # seconds of computing for the lines of one pattern
SIZE = 400_000
MOST_IN_UNIT = 4  # characters of what is repeated after a beginning
MOST = 600  # lines that are tried of a pattern
SMALL = 1_500  # the length at which the worst lines of a pattern are chosen
WORST = 2  # lines of a pattern
PACKAGE = Path(__file__).resolve().parent.parent / "cudaguard"
# Of Python files that are not imported as a part of the package.
SCRIPTS = ("_bisect", "_site")
FUNCTIONS = ("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall",
             "finditer")  # fmt: skip
# Patterns that are put together when the program runs: module -> how to get them, and the method.
MADE = {
    "cudaguard.tools.common": (
        "[_any_of(('/ab', '/abab'), r'(?<![^\\W_])', r'(?![\\w-]|\\.\\w)')]",
        "sub",
    ),
    "cudaguard.tools.explain": ("[re.compile(p) for (p,) in parts()['typed'].values()]", "match"),
    "cudaguard.system.name_owners": ("[pattern for pattern, _ in _compiled()]", "match"),
    "cudaguard.system.statuses": (
        "[*(t := status_table()).patterns.values(), *map(re.compile, map(re.escape, t.by_words))]",
        "finditer",
    ),
    "cudaguard.core.explain": (
        (
            "[re.compile(one) for section in parts().values() for lines in section.values()"
            " for one in lines if one[0] not in '>$']"
        ),
        "search",
    ),
    "cudaguard.core.known_errors": (
        "[re.compile(p) for one in __import__('tests.attacks').attacks.known() for p in one.says]",
        "finditer",
    ),
}


def known() -> list[Any]:
    """Return the messages that the features know."""
    from cudaguard import api  # noqa: F401  # hands the features to the core
    from cudaguard.core.explain import known_errors

    return known_errors()


class Use(NamedTuple):
    """A pattern and the method by which the package uses it."""

    where: str
    pattern: re.Pattern[Any]
    method: str


def modules() -> Iterator[str]:
    """Return the names of all modules of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if not set(parts) & {*SCRIPTS, "__main__"}:
            yield ".".join(part for part in parts if part != "__init__")


def uses() -> tuple[list[Use], list[str]]:
    """Return the patterns of the package, and the places where one could not be determined."""
    found: list[Use] = []
    unknown: list[str] = []
    for name in modules():
        try:
            module = importlib.import_module(name)
        except ImportError:  # a front end whose host is not installed
            continue
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        here, not_here = _in_module(name, ast.parse(source), vars(module))
        if name in MADE:
            how, method = MADE[name]
            here += [Use(name, pattern, method) for pattern in eval(how, dict(vars(module)))]
        elif not_here:
            unknown += not_here
        found += here
        known = {use.pattern for use in here}
        for variable, value in vars(module).items():
            reached = set(_patterns_in(value)) - known
            found += [Use(f"{name}:{variable}", pattern, "search") for pattern in reached]
    return list({(use.pattern, use.method): use for use in found}.values()), unknown


def _in_module(
    name: str, tree: ast.Module, variables: dict[str, Any]
) -> tuple[list[Use], list[str]]:
    found, unknown = [], []
    methods: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            methods.setdefault(node.value.id, set()).add(node.attr)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "re"
        for alias in node.names
    }
    assigned = {
        id(node.value): target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = imported.get(function.id, "") if isinstance(function, ast.Name) else ""
        if isinstance(function, ast.Attribute) and ast.unparse(function.value) == "re":
            called = function.attr
        if called not in FUNCTIONS:
            continue
        where = f"{name}:{node.lineno}"
        scope = {"re": re, **variables}
        rest = map(ast.unparse, (*node.args[1:], *(word.value for word in node.keywords)))
        flags = "|".join(text for text in rest if text.startswith("re."))
        try:
            pattern = eval(ast.unparse(node.args[0]), scope)
            compiled = re.compile(pattern, eval(flags or "0", scope))
        except NameError:
            unknown.append(where)
            continue
        variable = assigned.get(id(node), "")
        names = methods.get(variable, set()) & set(FUNCTIONS) or {"search"}
        found += [Use(where, compiled, n) for n in (names if called == "compile" else {called})]
    return found, unknown


def _patterns_in(value: object, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, frozenset, set, dict)) and depth:
        inner = (*value, *value.values()) if isinstance(value, dict) else value
        for item in inner:
            yield from _patterns_in(item, depth - 1)


# --- lines from a parse tree ------------------------------------------------------------------


class Attack(NamedTuple):
    """A line: a beginning, what is repeated after it, and an end on which the pattern fails."""

    start: str
    unit: str
    tail: str

    def line(self, size: int) -> str:
        """Return the line with a length."""
        return (
            self.start + self.unit * max(1, (size - len(self.start)) // len(self.unit)) + self.tail
        )


def attacks(pattern: re.Pattern[Any]) -> list[Attack]:
    """Return lines on which a pattern may take long."""
    text = pattern.pattern
    tree = parser.parse(text, pattern.flags if isinstance(text, str) else 0)
    starts: dict[str, None] = {"": None}
    units: dict[str, None] = {}
    for before, variants in _pieces(tree, ""):
        starts.setdefault(before, None)
        for variant in variants:
            units.setdefault(before + variant, None)
            units.setdefault(variant, None)
    units.pop("", None)
    pairs = [("", unit) for unit in units]
    pairs += [(start, unit) for start in starts for unit in units if len(unit) < MOST_IN_UNIT]
    found = [Attack(*pair, tail) for pair in dict.fromkeys(pairs) for tail in ("", "\0!")]
    if not _repeats(tree):  # one line shows that it runs at all
        return found[:1]
    return found[:: len(found) // MOST + 1]


def _repeats(tree: Iterable[Any]) -> bool:
    return any("REPEAT" in str(item[0]) or any(map(_repeats, _inside(item))) for item in tree)


def _pieces(tree: Iterable[Any], before: str) -> Iterator[tuple[str, list[str]]]:
    """Return for each item, inner ones too, what may come before it and examples of it."""
    for item in tree:
        yield before, _examples(item)
        for inner in _inside(item):
            yield from _pieces(inner, before)
        before += _examples(item)[0]


def _inside(item: Any) -> list[Any]:
    kind, value = str(item[0]), item[1]
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        return [value[2]]
    if kind in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
        return [value[-1]]
    return list(value[1]) if kind == "BRANCH" else []


def _examples(item: Any) -> list[str]:
    """Return texts that an item matches; the first one is the usual one."""
    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return [chr(value)]
    if kind in ("NOT_LITERAL", "ANY"):
        return [sign for sign in "x 1" if value != ord(sign)]
    if kind == "IN":
        return _members(value)
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, _, body = value
        once = _sequence(body)
        fewest = [] if least else [""]
        return [*(one * max(least, 1) for one in once), *fewest, *once]
    if kind == "SUBPATTERN":
        return _sequence(value[-1])
    if kind == "BRANCH":
        return [example for body in value[1] for example in _sequence(body)[:2]] or [""]
    return [""]  # an anchor, or a group once more


def _sequence(tree: Iterable[Any]) -> list[str]:
    parts = [_examples(item) for item in tree]
    usual = "".join(part[0] for part in parts)
    others = [
        "".join((variant if index == at else part[0]) for index, part in enumerate(parts))
        for at, variants in enumerate(parts)
        for variant in variants[1:5]
    ]
    return list(dict.fromkeys((usual, *others)))[:12]


_OF_CATEGORY = {"DIGIT": "1", "WORD": "a1_", "SPACE": " \n", "NOT_SPACE": "a.", "NOT_WORD": " .",
                "NOT_DIGIT": "a "}  # fmt: skip


def _members(options: list[Any]) -> list[str]:
    found: dict[str, None] = {}
    negated = any(str(kind) == "NEGATE" for kind, _ in options)
    out = set()
    for kind, value in options:
        if str(kind) == "LITERAL":
            found[chr(value)] = None
            out.add(chr(value))
        elif str(kind) == "RANGE":
            found[chr(value[0])] = None
            out |= {chr(code) for code in range(value[0], min(value[1], value[0] + 200) + 1)}
        elif str(kind) == "CATEGORY":
            signs = _OF_CATEGORY[str(value).replace("CATEGORY_", "").replace("UNI_", "")]
            found.update(dict.fromkeys(signs))
            out |= set(signs)
    if negated:
        return [sign for sign in "x1 /\"'.-=:&\n" if sign not in out][:5] or ["\u2603"]
    return list(found)[:6]


# --- the program ------------------------------------------------------------------------------


def run(pattern: re.Pattern[Any], method: str, line: Any) -> None:
    """Use a pattern on a line by a method."""
    call = getattr(pattern, method)
    if method in ("sub", "subn"):
        call(type(line)(), line)
    elif method == "finditer":
        for _ in call(line):
            pass
    else:
        call(line)


def take_longest(use: Use) -> float:
    """Run a pattern on its worst lines; return the seconds of the longest."""
    text = use.pattern.pattern
    as_given = str if isinstance(text, str) else lambda line: line.encode("latin-1", "ignore")
    took: dict[Attack, float] = {}

    def time_of(attack: Attack, size: int) -> float:
        line = as_given(attack.line(size))
        began = time.perf_counter()
        run(use.pattern, use.method, line)
        return time.perf_counter() - began

    for attack in attacks(use.pattern):
        took[attack] = min(time_of(attack, SMALL) for _ in range(2))
    worst = sorted(took, key=took.__getitem__, reverse=True)[:WORST]
    return max(time_of(attack, SIZE) for attack in worst)


def is_slow(use: Use, limit: int) -> bool:
    """Run a pattern in a process of its own; return whether a line takes longer than the limit."""
    pid = os.fork()
    if pid == 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))  # of its own, however busy it is
        take_longest(use)
        os._exit(0)
    return os.waitpid(pid, 0)[1] != 0


def main() -> None:
    """Print the patterns that are slow, and where a pattern could not be determined."""
    found, unknown = uses()
    slow = [f"{u.where} {u.method} {u.pattern.pattern!r}" for u in found if is_slow(u, LIMIT)]
    print(json.dumps({"patterns": len(found), "slow": slow, "unknown": unknown}))


if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGE.parent))
    main()
