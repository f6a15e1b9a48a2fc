"""Rule plug-ins: entry points of the group ``cudaguard.rules`` in other distributions.

An entry's *name* is the module it watches, its value the rule or rules; the value is imported
when that module is first imported, not before. ``importlib.metadata`` would cost several
times the start-up budget for a look at one group, so the entry point files are searched
directly; their format is the `entry points specification
<https://packaging.python.org/en/latest/specifications/entry-points/>`_.
"""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.errors import RuleError
from cudaguard.kernel import distributions, start_of
from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP = "cudaguard.rules"
_HEADER = f"[{GROUP}]".encode()


class Entry(Record):
    """One entry point."""

    module: str  # that it watches
    value: str  # ``package.module:attribute``
    origin: str  # the distribution's folder


def scan(path: Iterable[str]) -> dict[str, tuple[Entry, ...]]:
    """Return the entries of all distributions on `path`, by watched module.

    Reads directory listings and small text files; imports nothing. The first of two
    distributions of the same name wins, as it does for ``import``.
    """
    found: dict[str, tuple[Entry, ...]] = {}
    seen: set[str] = set()
    for folder in distributions(dict.fromkeys(one for one in path if isinstance(one, str))):
        name = folder.rpartition("/")[2]
        project = _project(name)
        if project not in seen:
            seen.add(project)
            data = start_of(f"{folder}/entry_points.txt")
            for entry in _entries(data.decode("utf-8", "replace"), name) if _HEADER in data else ():
                found[entry.module] = (*found.get(entry.module, ()), entry)
    return found


def _project(folder: str) -> str:
    """Return the normalized project name of ``My.Project-1.0.dist-info`` and the like."""
    words = folder.rpartition(".")[0].lower().replace(".", "_").split("-")
    # Old tools leave hyphens in the name: it ends where the version begins.
    version = next((place for place, word in enumerate(words) if word[:1].isdigit()), len(words))
    return "_".join(words[: max(version, 1)])


def _entries(text: str, origin: str) -> list[Entry]:
    entries = []
    inside = False
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and line and line[0] not in "#;":
            module, _, value = line.partition("=")
            entries.append(Entry(module.strip(), value.partition("[")[0].strip(), origin))
    return entries


def load(entry: Entry, *, known: Iterable[str] = ()) -> tuple[Rule, ...]:
    """Import the entry's value and return its rules.

    Raises:
        RuleError: if it is no rule or iterable of rules, or a rule is malformed.
        Exception: whatever importing foreign code raises.
    """
    import importlib

    from cudaguard.core.rule_check import check_rule

    module, _, attribute = entry.value.partition(":")
    value: object = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        value = getattr(value, part)
    origin = f"plug-in {entry.value} of {entry.origin}"
    if isinstance(value, Rule):
        value = (value,)
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise RuleError(f"{origin}: expected a cudaguard.Rule or an iterable, got {value!r}")
    return tuple(check_rule(rule, origin, known=known) for rule in value)
