"""Write the generated tables of the reference, and the JSON schema of rules.

Run ``python docs/generate.py`` after a change of rules, verbs, ids, known errors, options, schemas,
consumers or incidents; a test compares the files with the data. With ``--outputs`` it also runs the
commands that the pages show, and writes what they print now (see `_generate.blocks`).
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import TYPE_CHECKING, Any

from cudaguard.core.explain import explainers
from cudaguard.core.findings import Kind
from cudaguard.core.rule_check import KINDS, declared, toml_text
from cudaguard.core.table import table
from cudaguard.features.array_interface.consumers import (
    CONSUMERS,
    DENSE,
    FORWARD,
)
from cudaguard.model import GRADES
from cudaguard.tools.common import VARIABLES
from cudaguard.tools.doctor.checks import CHECKS, all_checks, check_of
from cudaguard.tools.explain import RULES

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where a test imports this

from _generate import DOCS, ROOT, commands, json_documents, outputs, troubleshooting
from _generate import messages as gallery
from _generate.markdown import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudaguard import Rule
    from cudaguard.core.checks import Check
    from cudaguard.core.table import Verb
    from cudaguard.features.array_interface.consumers import Consumer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

UPSTREAM = DOCS / "upstream.toml"
INCIDENTS = ROOT / "tests" / "coverage.toml"
FEATURES = ROOT / "cudaguard" / "features"
SCHEMA = ROOT / "cudaguard" / "tools" / "schema" / "rules.json"
# Titles of the sections of rules, in the order of the page.
SECTIONS = {
    "symbol_scope": "Symbol scope",
    "import_order": "Import order and preloaded libraries",
    "cuda_init": "CUDA contexts and memory",
    "array_interface": "Arrays",
    "gpu_architectures": "GPUs that compilers do not know",
    "cuda_graphs": "CUDA graphs",
    "builds": "Builds",
    "windows_runtime": "Windows",
    "extensions": "Packages that fit in pairs",
}


def _code(items: Iterable[str]) -> str:
    return ", ".join(f"`{item}`" for item in items)


def _names_as_code(text: str) -> str:
    """Quote what Markdown would take for emphasis."""
    return re.sub(r"[\w.]*_[\w.]*\w", r"`\g<0>`", text)


# --- verbs ------------------------------------------------------------------------------


def _verb(verb: Verb) -> tuple[str, ...]:
    example: dict[str, Any] = {verb.name: verb.example}
    example.update((item.name, item.example) for item in verb.parameters if item.required)
    takes = [KINDS[verb.kind].expected]
    takes += [
        f"`{item.name}`: {KINDS[item.kind].expected}{'' if item.required else ' (optional)'}"
        for item in verb.parameters
    ]
    grade = "any" if verb.grades == GRADES else _code(verb.grades)
    meaning = _names_as_code(verb.meaning)
    return f"`{verb.name}`", "; ".join(takes), grade, meaning, f"`{toml_text(example)}`"


def verbs() -> str:
    """Return the table of verbs."""
    head = ("verb", "value; parameters", "grade", "what the guard does", "example")
    return table_of(head, map(_verb, declared().values()))


_TEXT = {"type": "string", "minLength": 1}
_DOTTED = {"type": "string", "pattern": r"^[^\s.]+(\.[^\s.]+)*$"}
# Kind of values (see `cudaguard.core.rule_check.KINDS`) -> these as a JSON schema.
SCHEMAS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("file pattern", "scoped pattern", "library path", "library", "variable"), _TEXT
    ),
    **dict.fromkeys(("module", "function", "class", "target"), _DOTTED),
    "text": {"type": "string"},
    "texts": {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]},
    "parameter": {"type": "string", "pattern": r"^[^\s.]+$"},
    "switch": {"const": True},
}


def schema() -> dict[str, Any]:
    """Return the JSON schema of one action."""
    return {
        "oneOf": [
            {
                "description": verb.meaning,
                "type": "object",
                "additionalProperties": False,
                "required": [verb.name, *(p.name for p in verb.parameters if p.required)],
                "properties": {item.name: SCHEMAS[item.kind] for item in (verb, *verb.parameters)},
            }
            for verb in declared().values()
        ]
        + [
            {
                "description": "For built-in rules alone.",
                "type": "object",
                "additionalProperties": False,
                "required": [name],
                "properties": {name: {}},
            }
            for name in sorted(table.index.VERBS.keys() - declared().keys())
        ]
    }


# --- rules ------------------------------------------------------------------------------


def feature_tables() -> Iterator[tuple[str, Any]]:
    """Yield the features with their tables."""
    for path in sorted(FEATURES.glob("*/rules.py")):
        name = path.parent.name
        yield name, importlib.import_module(f"cudaguard.features.{name}.rules")


def _condition(key: str, value: Any) -> Iterator[str]:
    if key == "dists":
        yield from (f"`{dist}{versions}` installed" for dist, versions in value.items())
    elif key == "unless":
        pairs = (" with ".join(f"`{d}{v}`" for d, v in table.items()) for table in value)
        yield f"none of {', '.join(pairs)}"
    elif key == "env":
        for name, wanted in value.items():
            text = {True: "set", False: "not set"}.get(wanted) if isinstance(wanted, bool) else None
            yield f"`{name}` {text}" if text else f"`{name}={wanted}`"
    else:
        yield f"`{value}`" if isinstance(value, str) else _code(value)


def _rule(rule: Rule) -> tuple[str, ...]:
    applies = [" or ".join(f"`{item}`" for item in rule.dist)] if rule.dist else []
    applies += [text for key, value in rule.when.items() for text in _condition(key, value)]
    does = [f"needs `{name}`" for name in rule.needs]
    does += list(
        dict.fromkeys(
            f"`{key}`" for action in rule.actions for key in action if key in table.index.VERBS
        )
    )
    state = "unproven" if rule.verified is None else "reproduced"
    return (
        rule.id, _code(rule.watch), "; ".join(applies) or "any", _names_as_code(rule.title),
        ", ".join(does) or "reports it", rule.grade, state,
    )  # fmt: skip


def rules() -> str:
    """Return the tables of built-in rules, one for each feature."""
    head = ("id", "watches", "applies to", "title", "what the guard does", "grade", "state")
    of_feature: dict[str, list[Rule]] = {name: [] for name in SECTIONS}
    for rule in sorted(RULES, key=lambda rule: rule.id):
        of_feature[_feature_of(rule)].append(rule)
    return "\n".join(
        f"### {title}\n\n{table_of(head, map(_rule, of_feature[name]))}"
        for name, title in SECTIONS.items()
    )


def _feature_of(rule: Rule) -> str:
    entry = next(entry for id, entry, *_ in table.index.RULES if id == rule.id)
    return entry.split(".")[2]


def upstream() -> str:
    """Return what has to change elsewhere so that each rule can be retired."""
    told = tomllib.loads(UPSTREAM.read_text(encoding="utf-8"))
    ours = sorted(RULES, key=lambda rule: rule.id)
    wrong = sorted(set(told) ^ {rule.id for rule in ours})
    if wrong:
        what = "each rule has an entry with `who` and `change`"
        raise SystemExit(f"docs/{UPSTREAM.name}: {what}; see {', '.join(wrong)}")
    rows = (
        (rule.id, told[rule.id]["who"], told[rule.id]["change"], rule.fixed_in or "")
        for rule in ours
    )
    return table_of(("rule", "who", "what", "fixed in"), rows)


# --- ids --------------------------------------------------------------------------------


def _ids() -> Iterator[tuple[str, str, str, str]]:
    """Yield id, title, class of warnings, and where it belongs, of all that is no rule."""
    found = {
        one.id: (one.title, "", f"`{entry.replace(':', '.').split('.')[2]}`")
        for entry, explainer in zip(table.index.KNOWN_ERRORS, explainers())
        for one in explainer.known
    }
    for module in table.index.FINDINGS:
        home = module.split(".")[-2]
        for one in vars(importlib.import_module(module)).values():
            if isinstance(one, Kind):
                category = f"`{one.category}`" if one.category else ""
                found[one.id] = (one.title, category, f"`{home}`")
    for id in CHECKS:
        found[id] = (f"check: {check_of(id).title}", "", "`doctor`")
    yield from ((id, *what) for id, what in sorted(found.items()))


def ids() -> str:
    """Return the table of ids; neighbors that say the same share a row."""
    rows: list[list[str]] = []
    for id, *what in _ids():
        if rows and rows[-1][1:] == what:
            rows[-1][0] = f"{rows[-1][0].partition(' ')[0]} to {id}"
        else:
            rows.append([id, *what])
    return table_of(("id", "title", "warning class", "part"), rows)


# --- consumers ------------------------------------------------------------------------


def _linked(evidence: Iterable[str]) -> str:
    texts = [item for item in evidence if not item.startswith("https://")]
    links = (item for item in evidence if item.startswith("https://"))
    return ", ".join([*texts, *(f"[{n}]({item})" for n, item in enumerate(links, 1))])


def _consumer(one: Consumer) -> tuple[str, ...]:
    refused = {
        "big-endian types": ">" in one.misreads,
        "complex types": "c" in one.misreads,
        "all but C order without gaps": one.strides == DENSE,
        "strides that are negative or no multiples of the element": one.strides == FORWARD,
        "read-only arrays": not one.takes_read_only,
        "version 2 without a stream": one.least_version == 3,
    }
    written = {
        "no `stream: None` (1.32 to 1.36)": not one.takes_no_stream,
        "`\\|b1` as `\\|?`": one.boolean != "|b1",
        "versions 0 and 1 as 2": one.least_version == 2,
    }
    return (
        f"`{one.name}`",
        "it waits" if one.heeds_stream else "the host waits",
        "; ".join(text for text, is_so in refused.items() if is_so),
        "; ".join(text for text, is_so in written.items() if is_so),
        _linked(one.evidence),
    )


def consumers() -> str:
    """Return the table of the libraries that read arrays."""
    head = ("consumer", "streams", "cudaguard refuses", "cudaguard rewrites", "evidence")
    return table_of(head, map(_consumer, CONSUMERS))


# --- checks -----------------------------------------------------------------------------


def _check(one: Check) -> tuple[str, ...]:
    with_option = f" With `{one.option}`." if one.option else ""
    return one.id, one.title, one.about + with_option


def checks() -> str:
    """Return the table of doctor's checks."""
    return table_of(("id", "check", "what it looks at"), map(_check, all_checks().values()))


# --- incidents --------------------------------------------------------------------------


def coverage() -> str:
    """Return how many public incidents have which grade."""
    document = tomllib.loads(INCIDENTS.read_text(encoding="utf-8"))
    found, proofs = document["incident"], document["proofs"]
    proven = (name for name in proofs if name != "none")
    head = ("grade", "what happens", "expected", "reached", *proven, "no test")
    rows = []
    for grade, meaning in document["grades"].items():
        reached = [one["proof"] for one in found if one["grade"] == grade]
        expected = sum(one["expected"] == grade for one in found)
        counts = (expected, len(reached), *map(reached.count, proofs))
        rows.append((f"`{grade}`", meaning, *map(str, counts)))
    return f"{len(found)} public incidents, by what cudaguard does:\n\n{table_of(head, rows)}"


def variables() -> str:
    """Return the environment variables that documents for others show."""
    return fill(_code(sorted(VARIABLES)), 118, break_on_hyphens=False) + "\n"


# --- files ------------------------------------------------------------------------------

PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "errors": ("troubleshooting.md", troubleshooting.errors),
    "warnings": ("troubleshooting.md", troubleshooting.warnings),
    "verbs": ("reference/rules.md", verbs),
    "rules": ("reference/catalog.md", rules),
    "ids": ("reference/catalog.md", ids),
    "checks": ("reference/commands/doctor.md", checks),
    "consumers": ("reference/consumers.md", consumers),
    "upstream": ("reference/upstream.md", upstream),
    "coverage": ("reference/coverage.md", coverage),
    "commands": ("reference/cli.md", commands.overview),
    "statuses": ("reference/cli.md", commands.statuses),
    "messages": ("reference/messages.md", gallery.messages),
    "documents": ("reference/json.md", json_documents.documents),
    "variables": ("explanation/security.md", variables),
    **{
        f"options of {name}": (page, partial(commands.options, name))
        for name, page in commands.pages()
    },
}


def documents() -> dict[Path, str]:
    """Return the files as they should be."""
    texts: dict[Path, str] = {}
    for part, (name, make) in PARTS.items():
        path = DOCS / name
        text = texts.get(path) or path.read_text(encoding="utf-8")
        begin, end = f"<!-- {part}: written by docs/generate.py -->\n", f"<!-- end of {part} -->\n"
        before, _, rest = text.partition(begin)
        texts[path] = f"{before}{begin}{make()}{end}{rest.partition(end)[2]}"
    declared_fields = json.loads(SCHEMA.read_text(encoding="utf-8"))
    fields = declared_fields["oneOf"][0]["properties"]["rules"]["items"]["properties"]
    fields["actions"] = {"type": "array", "items": schema()}
    texts[SCHEMA] = json.dumps(declared_fields, indent=2, ensure_ascii=False) + "\n"
    return texts


def pages() -> list[Path]:
    """Return the pages whose code blocks are run, or say why not."""
    others = ("README.md", "CONTRIBUTING.md", "examples/README.md", "benchmarks/README.md")
    return [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in others)]


def _update_outputs() -> None:
    """Run the commands of the pages, and write what they print now."""
    for path in pages():
        text = path.read_text(encoding="utf-8")
        lacking = [name for name in outputs.needed(text) if find_spec(name) is None]
        if lacking:
            sys.stderr.write(f"{path.name}: left as it is without {', '.join(lacking)}\n")
            continue
        with TemporaryDirectory() as folder:
            path.write_text(outputs.updated(text, Path(folder).resolve()), encoding="utf-8")


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
    if "--outputs" in sys.argv[1:]:
        _update_outputs()
