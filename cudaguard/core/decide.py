"""From rules, facts and mode to what is done: whether a rule applies, and the order of imports.

Pure functions. Whether something may be done is asked of `cudaguard.core.rule`.
"""

from __future__ import annotations

from cudaguard.core.registry import holds
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system.facts import are_installed, clauses, in_range, required_name, requirement_met

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudaguard.core.rule import Rule
    from cudaguard.system.facts import Facts

_UNDENIABLE = (1 << 30,)  # a rank above that of any rule


def applies(rule: Rule, facts: Facts) -> bool:
    """Return True if all conditions of the rule hold here; the cheap ones are asked first."""
    when = rule.when
    if not when and not rule.dist:
        return True
    if not holds(when, facts.platform, facts.machine, facts.environ):
        return False
    if "python" in when and not in_range(facts.python, when["python"]):
        return False
    if not are_installed(when.get("dists", {}), facts.version):
        return False
    if rule.dist and not any(requirement_met(item, facts.version) for item in rule.dist):
        return False
    return not any(are_installed(table, facts.version) for table in when.get("unless", ()))


def applying(rules: Iterable[Rule], facts: Facts) -> list[Rule]:
    """Return those of the rules whose conditions hold here."""
    return [rule for rule in rules if applies(rule, facts)]


def may_apply(rule: Rule, facts: Facts) -> bool:
    """Return True if the rule may apply where the program runs, which may be elsewhere.

    Only versions that are installed here count against it.
    """

    def is_known(dist: str) -> bool:
        return facts.version(dist) is not None

    dists = {d: spec for d, spec in rule.when.get("dists", {}).items() if is_known(d)}
    installed = tuple(item for item in rule.dist if is_known(required_name(item)))
    return applies(rule.replace(dist=installed, when={"dists": dists}), facts)


class Plan(NamedTuple):
    """Plan for one watched module by the rules in force, in the order of doing."""

    needs: tuple[tuple[str, str], ...] = ()  # (module to import first, id of the rule)
    reported: tuple[Rule, ...] = ()  # of the grade ``report``
    problems: tuple[str, ...] = ()  # contradictions, in words


def plan(
    name: str,
    rules_of: Callable[[str], tuple[Rule, ...]],
    is_users: Callable[[Rule], bool],
    facts: Facts,
) -> Plan:
    """Return what the rules ask for around the import of `name`."""
    own = [rule for rule in rules_of(name) if applies(rule, facts)]
    reported = tuple(rule for rule in own if rule.grade == "report")
    if not any(rule.needs for rule in own):
        return Plan(reported=reported)
    from cudaguard.core.findings import PYTHON_ITSELF

    # Other rules may order the prerequisites among themselves, or say the opposite: follow
    # the rules of every module that can be reached.
    edges: list[Before] = []
    seen: set[str] = set()
    todo = [name]
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        package = module.rpartition(".")[0]
        if package:  # importing a.b imports a first, whatever a rule says
            edges.append(Before(package, module, PYTHON_ITSELF, _UNDENIABLE))
            todo.append(package)
        for rule in rules_of(module):
            if rule.needs and rule.grade != "report" and applies(rule, facts):
                rank = _rank(rule, is_users(rule))
                chain = (*rule.needs, module)
                edges.extend(Before(a, b, rule.id, rank) for a, b in zip(chain, chain[1:]))
                edges.extend(Before(a, module, rule.id, rank) for a in rule.needs)
                todo.extend(rule.needs)
    order, honored, problems = in_order(without_opposites(edges))
    left = {(edge.first, edge.then) for edge in honored}
    asked = {
        need: rule.id
        for rule in reversed(own)
        if rule.grade != "report"
        for need in rule.needs
        if (need, name) in left
    }
    needs = tuple((module, asked[module]) for module in order if module in asked)
    return Plan(needs, reported, tuple(problems))


def _rank(rule: Rule, users: bool) -> tuple[int, ...]:
    """More conditions win, then narrower versions, then a user's rule over a built-in one."""
    conditions = sum(
        len(value) if isinstance(value, dict) else 1 for value in rule.when.values()
    ) + bool(rule.dist)
    return conditions, min(map(clauses, rule.dist), default=0), int(users)


# --- Import order as a graph: who must come before whom, and what to do about contradictions ------


class Before(NamedTuple):
    """`first` must be imported before `then`, says `rule`."""

    first: str
    then: str
    rule: str
    # decides between two rules that say the opposite of one pair; the greater wins
    rank: tuple[int, ...] = ()


def without_opposites(edges: Iterable[Before]) -> list[Before]:
    """Drop each edge whose opposite has a greater rank. Equal ranks both stay: a cycle."""
    strongest: dict[tuple[str, str], tuple[int, ...]] = {}
    edges = list(edges)
    for edge in edges:
        pair = edge.first, edge.then
        strongest[pair] = max(strongest.get(pair, edge.rank), edge.rank)
    return [
        edge
        for edge in edges
        if strongest.get((edge.then, edge.first), edge.rank) <= strongest[edge.first, edge.then]
    ]


def in_order(edges: Iterable[Before]) -> tuple[list[str], list[Before], list[str]]:
    """Return (modules in a safe order, edges honored by it, contradictions in words).

    The edges of a contradiction are not honored, none of them.
    """
    from graphlib import CycleError, TopologicalSorter

    edges = list(edges)
    problems: list[str] = []
    while True:
        graph: dict[str, list[str]] = {}
        for edge in edges:
            graph.setdefault(edge.then, []).append(edge.first)
        try:
            return list(TopologicalSorter(graph).static_order()), edges, problems
        except CycleError as error:
            cycle: list[str] = error.args[1][:-1]  # each one must precede the next
            # The same words wherever the cycle was entered, so that it is told only once.
            start = cycle.index(min(cycle))
            cycle = [*cycle[start:], *cycle[: start + 1]]
            words: list[str] = []
            involved: list[Before] = []
            for step in zip(cycle, cycle[1:]):
                here = [edge for edge in edges if (edge.first, edge.then) == step]
                involved += here
                rules = sorted({edge.rule for edge in here})
                words += [f"{rule} wants {step[0]} before {step[1]}" for rule in rules]
            problems.append("; ".join(words) + ": this cannot be done")
            edges = [edge for edge in edges if edge not in involved]
