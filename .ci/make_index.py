"""Write what is generated in `cudaguard`; with `--check` tell whether it is up to date.

`_index.py` has, of all features, what the guard must know before it loads any of them. It is made
from `rules.py` of each feature that has one. `kernel/watched.py` has what the kernel must know, to
wake the guard in time.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parent.parent
_INDENT = " " * 4
_TYPES = {"RULES": ": tuple[tuple[object, ...], ...]"}
INDEX = ROOT / "cudaguard" / "features" / "_index.py"
# In the order of doing, where several have a part at one moment.
FEATURES = (
    "symbol_scope", "import_order", "duplicate_libraries", "cuda_init", "array_interface",
    "cuda_graphs", "gpu_architectures", "builds", "extensions", "windows_runtime",
)  # fmt: skip
WATCHED = ROOT / "cudaguard" / "kernel" / "watched.py"
HEAD_OF_WATCHED = '''\
# ruff: noqa: SIM905  # a list of words would have a line for each word
"""What wakes the guard. Generated: after a change, python .ci/make_index.py.

WATCHED are modules; WINDOWS, more of them there. BROUGHT and FIRST are libraries that rules bring
for an extension which needs them, the latter if the environment has them: beginnings of names, and
names. LIBRARIES and PARTS are those that detectors know: names up to ``.so``, and beginnings.
GLOBAL are beginnings of the names of libraries that may be global without anybody being told.
"""

'''
HEAD = '''\
# ruff: noqa: SIM905  # a list of words would have a line for each word
"""All features, as the core knows them. Generated: after a change, python .ci/make_index.py.

An entry is a text ``module:name``; `cudaguard.core.table` says what each table is for.
"""

from __future__ import annotations

'''


def imported(name: str):
    return importlib.import_module(f"cudaguard.features.{name}")


def checks_of(feature: str):
    """Yield id and entry of the checks that a feature declares."""
    from cudaguard.core.checks import Check

    if not list((INDEX.parent / feature).glob("checks*")):
        return
    found = imported(f"{feature}.checks")
    parts = pkgutil.iter_modules(getattr(found, "__path__", ()))
    for module in (found, *(imported(f"{feature}.checks.{part.name}") for part in parts)):
        for name, value in vars(module).items():
            if isinstance(value, Check):
                yield value.id, f"{module.__name__}:{name}"


def kinds(modules):
    """Yield the kinds of findings that modules have."""
    from cudaguard.core.findings import Kind

    for module in modules:
        for value in vars(importlib.import_module(module)).values():
            if isinstance(value, Kind):
                yield value


def known_errors(tables):
    """Yield entry and messages of the core and of each feature that knows some.

    Without functions, they are a file alone.
    """
    from cudaguard.core.known_errors import FILE, known_in

    for name, table in {"": None, **tables}.items():
        folder = INDEX.parent / name if name else INDEX.parent.parent / "core"
        if hasattr(table, "KNOWN_ERRORS"):
            module, _, attribute = table.KNOWN_ERRORS.partition(":")
            known = getattr(imported(f"{name}.{module}"), attribute).known
            yield f"cudaguard.features.{name}.{table.KNOWN_ERRORS}", known
        elif (folder / FILE).exists():
            yield (
                f"cudaguard.{f'features.{name}' if name else 'core'}:{FILE}",
                known_in(folder / FILE),
            )


def events_of(detector: str, modules):
    """Return what a detector has methods for; it hears of the imports of those modules."""
    from cudaguard.core.table import table

    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    known = re.findall(r"\n\| `(\w+)` \| event \|", guide)
    kind = table.resolve(detector)
    events = [event for event in known if hasattr(kind, event)]
    for name in vars(kind).keys() - known:  # it would never be called
        meant = get_close_matches(name, known, 1, 0.8)
        if meant:
            raise SystemExit(f"{detector}: there is no event {name!r}; did you mean {meant[0]!r}?")
    imports = [f"imported:{module}" for module in modules]
    return (*(event for event in events if event != "imported"), *imports)


def conditions_of(rule, needing) -> dict[str, object]:
    """Return the conditions that are cheap to ask; `needing`: the verbs that need a driver."""
    cheap = {key: what for key, what in rule.when.items() if key in ("platform", "machine", "env")}
    if rule.dist or rule.when.keys() - cheap:
        cheap["more"] = True
    if rule.actions and all(needing.intersection(action) for action in rule.actions):
        cheap["driver"] = True
    return cheap


def index() -> str:
    """Return the text of the index."""
    tables = {
        name: imported(f"{name}.rules" if (INDEX.parent / name / "rules.py").exists() else name)
        for name in FEATURES
    }
    findings = ["cudaguard.core.findings"]
    findings += [f"cudaguard.features.{name}.findings" for name in FEATURES
                 if (INDEX.parent / name / "findings.py").exists()]  # fmt: skip

    def entry(feature: str, text: str) -> str:
        return f"cudaguard.features.{feature}.{text}"

    does = {
        name: {**{verb.name: verb.does for verb in getattr(table, "VERBS", ())},
               **getattr(table, "REPAIRS", {})}
        for name, table in tables.items()
    }  # fmt: skip
    verbs = {
        verb: {moment: entry(name, what) for moment, what in moments.items()}
        for name, own in does.items()
        for verb, moments in own.items()
    }
    needing = {verb for table in tables.values() for verb in getattr(table, "NEED_DRIVER", ())}
    rules = [
        (
            rule.id, f"{table.__name__}:RULES", rule.grade, rule.watch, rule.needs,
            tuple((v, what) for action in rule.actions for v, what in action.items() if v in verbs),
            conditions_of(rule, needing),
        )
        for table in tables.values()
        for rule in getattr(table, "RULES", ())
    ]  # fmt: skip
    detectors = [
        (entry(name, what), events_of(entry(name, what), modules))
        for name, table in tables.items()
        for what, modules in getattr(table, "DETECTORS", {}).items()
    ]
    categories = {verb: tables[name].CATEGORY for name, own in does.items() for verb in own}
    ids: dict[str, tuple[str, str]] = {}
    for kind in kinds(findings):
        if ids.setdefault(kind.id, (kind.title, kind.category)) != (kind.title, kind.category):
            raise SystemExit(f"{kind.id} has two titles: {ids[kind.id][0]!r} and {kind.title!r}")
    checks = sorted(check for name in FEATURES for check in checks_of(name))
    ids = {id: titled for id, titled in ids.items() if id not in dict(checks)}
    prerequisites = {
        word: entry(name, what)
        for name, table in tables.items()
        for word, what in getattr(table, "PREREQUISITES", {}).items()
    }
    initializers: list[str] = []
    for name, table in tables.items():
        if hasattr(table, "INITIALIZERS"):
            module, _, attribute = table.INITIALIZERS.partition(":")
            initializers += getattr(imported(f"{name}.{module}"), attribute)
    # What a detector is to hear of is watched as well.
    for table in tables.values():
        for modules in getattr(table, "DETECTORS", {}).values():
            initializers += (module for module in modules if module not in initializers)
    without: dict[str, tuple[str, str]] = {}
    for table in tables.values():
        without.update(getattr(table, "BUILT_WITHOUT", {}))
    known = dict(known_errors(tables))
    for where, messages in known.items():
        for one in messages:
            title, _ = ids.setdefault(one.id, (one.title, ""))
            if title != one.title:
                raise SystemExit(f"{one.id} has two titles: {title!r}, {one.title!r} in {where}")
    parts = {
        "RULES": tuple(rules), "VERBS": verbs, "CATEGORIES": categories,
        "TABLES": tuple(entry(n, "rules:VERBS") for n, t in tables.items() if hasattr(t, "VERBS")),
        "DETECTORS": tuple(detectors), "PREREQUISITES": prerequisites,
        "INITIALIZERS": tuple(initializers), "BUILT_WITHOUT": without, "KNOWN_ERRORS": tuple(known),
        "FINDINGS": tuple(findings),
        "CHECKS": dict(checks),
        "IDS": {id: category for id, (_, category) in sorted(ids.items())},
    }  # fmt: skip
    return HEAD + "\n".join(
        f"{name}{_TYPES.get(name, '')} = {_rows(value)}\n" for name, value in parts.items()
    )


def watched() -> str:
    """Return the text of what the kernel must know."""
    from cudaguard.core.registry import Registry, built_in
    from cudaguard.core.table import table
    from cudaguard.features import _index
    from cudaguard.files import fixed_part
    from cudaguard.system.runtimes import GLOBAL_ON_PURPOSE, IN_PARTS, RUNTIMES

    table.use(_index)
    registry, of_windows = (Registry(built_in(one), {}) for one in ("linux", "win32"))
    asked = {
        moment: [what for e in registry.entries for v, what in e.does if moment in _index.VERBS[v]]
        for moment in ("needing", "first", "choosing")
    }
    names = (*registry.by_module, *registry.opt_in_orders, *_index.INITIALIZERS)
    parts = {
        "WATCHED": names,
        "WINDOWS": of_windows.by_module.keys() - set(names),
        "BROUGHT": {fixed_part(what) for what in (*asked["needing"], *asked["choosing"])},
        "FIRST": asked["first"],
        "LIBRARIES": ("libcuda", *RUNTIMES),
        "PARTS": [f"{name}_" for name in IN_PARTS],
        # Of MKL the guard has to ask how wide its integers are: see `is_meant_for_all`.
        "GLOBAL": {*map(fixed_part, GLOBAL_ON_PURPOSE), "vgpreload"} - {"libmkl_"},
    }
    rows = (f"{name} = {_words(sorted(set(value)))}\n" for name, value in parts.items())
    return HEAD_OF_WATCHED + "".join(rows)


def _words(words: Iterable[str]) -> str:
    """Return a list of words as code: a text that is split."""
    return f'"{" ".join(words)}".split()'


def _rows(value: tuple | dict) -> str:
    """Return a table as code, with a row on each line; of words, a row for each that many have."""
    if isinstance(value, dict) and all(f"_{row}".isidentifier() for row in value.values()):
        keys: dict[str, list[str]] = {}
        for key, row in value.items():
            keys.setdefault(row, []).append(key)
        rows = (f"{_INDENT}**dict.fromkeys({_words(of)}, {row!r}),\n" for row, of in keys.items())
        return "".join(("{\n", *rows, "}"))
    if isinstance(value, tuple) and all(str(row).replace(".", "").isidentifier() for row in value):
        return _words(value)
    if isinstance(value, dict):
        return "".join(("{\n", *(f"    {key!r}: {row!r},\n" for key, row in value.items()), "}"))
    return "".join(("(\n", *(f"    {row!r},\n" for row in value), ")"))


def main() -> int:
    """Write or check."""
    for file, make in ((INDEX, index), (WATCHED, watched)):
        text = make()
        if "--check" not in sys.argv:
            file.write_text(text)
        elif file.read_text() != text:
            return 1
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
