"""Rules from code, files and plug-ins: whether they are well formed, and how plug-ins are found."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.core.table import RESERVED_PREFIX, table
from cudaguard.errors import RuleError
from cudaguard.files.text import RULE_LINE, close_match
from cudaguard.kernel import distributions, start_of
from cudaguard.model import GRADES, TYPE_CHECKING, Record, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, NoReturn, Protocol

    from cudaguard.core.table import Parameter, Verb

    Show = Callable[[object], str]

    class _Refuse(Protocol):
        def __call__(self, field: str, problem: str) -> NoReturn: ...

# --- What an action may be ------------------------------------------------------------------------
# An action is a table: one key is a verb, the others are its parameters. Error messages, the
# reference and the JSON schema are made from the verbs that features declare. What a built-in rule
# alone needs is no verb: its feature names the function in `REPAIRS`, and only rules with a
# reserved id may ask for it.


class ValueType(Record):
    """Type of the values that a verb or a parameter takes."""

    expected: str  # the values in words, as errors and the reference name them
    fits: Callable[[object], bool]  # returns False for values of another type or form
    # Returns what else is wrong with a value, or an empty text; it is called for texts only
    problem: Callable[[str], str] = lambda _: ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_dotted(value: object) -> bool:
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))


def _is_inner_path(value: object) -> bool:
    return _is_text(value) and not str(value).startswith("/") and ".." not in str(value).split("/")


def _is_variable(value: object) -> bool:
    is_word = isinstance(value, str) and value.split() == [value]
    return is_word and not {"=", "\0"} & set(str(value))


def _serves_others(pattern: str) -> str:
    from cudaguard.files import fixed_part, matches
    from cudaguard.system.runtimes import GLOBAL_ON_PURPOSE

    if matches(fixed_part(pattern), GLOBAL_ON_PURPOSE):
        return "this library serves others from the global scope; leave it"
    return ""


KINDS: dict[str, ValueType] = {
    "file pattern": ValueType("a file name pattern", _is_text),
    "scoped pattern": ValueType("a file name pattern", _is_text, _serves_others),
    "library": ValueType(
        "a path below a folder of sys.path, or the soname of a library in NVIDIA's wheels",
        lambda value: _is_inner_path(value) and ("/" in str(value) or "*" not in str(value)),
    ),
    "variable": ValueType("the name of an environment variable", _is_variable),
    "text": ValueType(
        "a text without a zero byte", lambda value: isinstance(value, str) and "\0" not in value
    ),
    "module": ValueType("the name of a module", _is_dotted),
    "function": ValueType("a function or method of the watched module", _is_dotted),
    "class": ValueType("a class of the watched module", _is_dotted),
    "parameter": ValueType(
        "the name of a parameter", lambda value: isinstance(value, str) and value.isidentifier()
    ),
    "target": ValueType("the full name of a class or function", _is_dotted),
    "switch": ValueType("true", lambda value: value is True),
}

# --- which verbs there are -----------------------------------------------------------------------


def declared() -> Mapping[str, Verb]:
    """Return all verbs by name."""
    return {verb.name: verb for entry in table.index.TABLES for verb in table.resolve(entry)}


# --- the checker ---------------------------------------------------------------------------------


def fault_in(action: object, rule: Rule, show: Show) -> tuple[str, str] | None:
    """Return the field of the rule and what is wrong with it, or None for an action that fits."""
    verbs = declared()
    if not isinstance(action, dict):
        example = next(iter(verbs.values()))
        right = show({example.name: example.example})
        return "actions", f"expected a table such as {right}, got {show(action)}"
    found = [key for key in action if key in verbs]
    if rule.id.startswith(RESERVED_PREFIX) and not found and table.index.VERBS.keys() & action:
        return None  # a function of its feature
    if len(found) != 1:
        return "actions", f"got {show(action)}: {_wrong_verbs(action, found, show)}"
    verb = verbs[found[0]]
    if wrong := _wrong_value(verb, action, show):
        return "actions", f"got {show(action)}: {wrong}"
    if rule.grade not in verb.grades:
        expected = " or ".join(map(repr, verb.grades))
        problem = (
            f"{verb.name} can change what a program does: grade must be {expected}, and the rule "
            f"is switched on by its id; got {rule.grade!r}"
        )
        return "grade", problem
    return None


def _wrong_verbs(action: dict[Any, Any], found: list[str], show: Show) -> str:
    verbs = declared()
    if found:
        tables = ", ".join(show(_corrected(verbs[key], action)) for key in found)
        return f"a table has one verb, not {len(found)}; write [{tables}]"
    for key, value in action.items():
        if close := close_match(key, verbs):
            right = show(_corrected(verbs[close], {**action, close: value}))
            return f"{key!r} is not a verb; did you mean {right}?"
    return f"no key is a verb; expected one of {', '.join(verbs)}"


def _wrong_value(verb: Verb, action: dict[Any, Any], show: Show) -> str:
    """Return what is wrong with the values and parameters of an action, or ""."""
    items: tuple[Verb | Parameter, ...] = (verb, *verb.parameters)
    kinds = {item.name: KINDS[item.kind] for item in items}
    right = show(_corrected(verb, action))
    for key in action:
        if key not in kinds:
            names = ", ".join(list(kinds)[1:])
            takes = f"takes only {names}" if names else "takes no parameters"
            return (
                f"{key!r} is not a parameter of {verb.name}, which {takes}; did you mean {right}?"
            )
    for key, value in action.items():
        if not kinds[key].fits(value):
            return f"{key}: expected {kinds[key].expected}, got {show(value)}; for example {right}"
        problem = kinds[key].problem(value) if isinstance(value, str) else ""
        if problem:
            return f"{key}: {problem}"
    for parameter in verb.parameters:
        if parameter.required and parameter.name not in action:
            expected = kinds[parameter.name].expected
            return f"{parameter.name!r} is missing, {expected}; for example {right}"
    return ""


def _corrected(verb: Verb, action: Mapping[Any, Any]) -> dict[str, object]:
    """Return the table that was probably meant; it fits."""
    value = action.get(verb.name)
    table = {verb.name: value if KINDS[verb.kind].fits(value) else verb.example}
    known = [parameter.name for parameter in verb.parameters]
    # A key that is nearly a parameter's gives its value.
    meant = {close_match(key, known): action[key] for key in action if key not in known}
    for parameter in verb.parameters:
        value = action.get(parameter.name, meant.get(parameter.name))
        if KINDS[parameter.kind].fits(value):
            table[parameter.name] = value
        elif parameter.required:
            table[parameter.name] = parameter.example
    return table


# --- as text -------------------------------------------------------------------------------------


def toml_text(value: object) -> str:
    """Return a value as TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"')
        safe = (char if char >= " " and char != "\x7f" else f"\\u{ord(char):04x}" for char in text)
        return f'"{"".join(safe)}"'
    if isinstance(value, dict):
        items = ", ".join(f"{_toml_key(key)} = {toml_text(item)}" for key, item in value.items())
        return f"{{ {items} }}" if items else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_text, value))}]"
    return repr(value)


def _toml_key(key: object) -> str:
    text = str(key)
    is_bare = text.isascii() and text.replace("-", "").replace("_", "").isalnum()
    return text if is_bare else toml_text(text)


def rule_to_save(package: str, action: Mapping[str, Any], why: str) -> str:
    """Return the advice to save a rule about a package, with the text of that rule."""
    lines = (
        "save this rule as cudaguard.toml and set CUDAGUARD_CONFIG=cudaguard.toml:",
        "[[rules]]",
        'id = "LOCAL001"',
        f"watch = {toml_text([package])}",
        f"actions = {toml_text([action])}",
        f"why = {toml_text(why)}",
    )
    return RULE_LINE.join(lines)


REQUIRED = ("id", "watch", "why")
WHEN_KEYS = ("python", "platform", "machine", "env", "dists", "unless")


def check_rule(
    rule: object, origin: str, *, known: Iterable[str] = (), is_toml: bool = False
) -> Rule:
    """Return `rule` if it is well formed.

    Messages name its `origin`, and show actions as they are written, with `is_toml` in TOML.
    Reserved identifiers that are `known` may be replaced.

    Raises:
        RuleError: naming the rule, its origin, the field, and what was expected.
    """
    if not isinstance(rule, Rule):
        raise RuleError(f"{origin}: expected a cudaguard.Rule, got {type(rule).__name__} {rule!r}")

    def refuse(field: str, problem: str) -> NoReturn:
        raise RuleError(f"{origin}: rule {rule.id!r}, {field}: {problem}")

    _text(rule.id, "id", refuse)
    if not rule.id.replace("-", "").replace("_", "").isalnum():
        refuse("id", "expected letters, digits, '-' and '_'")
    if rule.id.upper().startswith(RESERVED_PREFIX) and rule.id not in known:
        refuse("id", "ids that start with CG belong to the built-in rules; choose another prefix")
    _text(rule.why, "why", refuse)
    if not isinstance(rule.title, str):
        refuse("title", f"expected a text, got {rule.title!r}")
    for field in ("fixed_in", "verified"):
        if getattr(rule, field) is not None:
            _text(getattr(rule, field), field, refuse)
    for field in ("watch", "dist", "needs", "links"):
        _strings(getattr(rule, field), field, refuse)
    if not rule.watch:
        refuse("watch", "expected at least one module name")
    for field in ("watch", "needs"):
        for name in getattr(rule, field):
            if not _is_dotted(name):
                refuse(field, f"{name!r} is not a module name such as 'torch' or 'nvidia.dali'")
    for name in rule.needs:
        for watched in rule.watch:
            if name == watched:
                refuse("needs", f"{name!r} is also watched by this rule: it cannot precede itself")
            if name.startswith(f"{watched}."):
                refuse("needs", f"{name!r} cannot precede {watched!r}, which Python imports first")
    if rule.grade not in GRADES:
        refuse("grade", f"got {rule.grade!r}, expected one of {', '.join(GRADES)}")
    show: Show = toml_text if is_toml else lambda value: repr(plain(value))
    if not isinstance(rule.actions, tuple):
        right = f"; write {show([rule.actions])}" if isinstance(rule.actions, dict) else ""
        refuse("actions", f"expected a list of tables, got {show(rule.actions)}{right}")
    for action in rule.actions:
        if (fault := fault_in(action, rule, show)) is not None:
            refuse(*fault)
    for requirement in rule.dist:
        _requirement(requirement, refuse)
    _check_when(rule.when, refuse)
    return rule


def rules_from_tables(
    tables: Iterable[Mapping[str, Any]], origin: str, *, known: Iterable[str] = ()
) -> tuple[Rule, ...]:
    """Return the rules that the tables of one file describe.

    Raises:
        RuleError: naming the file, the table, the key, and what was expected.
    """
    rules = []
    for number, entry in enumerate(tables, 1):
        where = f"{origin}: [[rules]] number {number}"
        for key in entry:
            if key not in Rule._fields:
                raise RuleError(
                    f"{where}: unknown key {key!r}; expected one of {', '.join(Rule._fields)}"
                )
        for key in REQUIRED:
            if key not in entry:
                raise RuleError(f"{where}: the key {key!r} is missing")
        rules.append(check_rule(Rule(**entry), where, known=known, is_toml=True))
    return tuple(rules)


def _text(value: object, field: str, refuse: _Refuse) -> None:
    if not isinstance(value, str) or not value.strip():
        refuse(field, f"expected a text that is not empty, got {value!r}")


def _strings(value: object, field: str, refuse: _Refuse) -> None:
    if isinstance(value, str):
        refuse(field, f"expected a list of strings, got the string {value!r}; write [{value!r}]")
    if not isinstance(value, tuple) or not all(isinstance(item, str) and item for item in value):
        refuse(field, f"expected a list of strings that are not empty, got {value!r}")


def _check_when(when: object, refuse: _Refuse) -> None:
    if not isinstance(when, dict):
        refuse("when", f"expected a table, got {when!r}")
    for key, value in when.items():
        field = f"when.{key}"
        if key not in WHEN_KEYS:
            refuse("when", f"unknown key {key!r}, expected one of {', '.join(WHEN_KEYS)}")
        if key == "python":
            _specifier(value, field, refuse)
        elif key in ("platform", "machine"):
            names = (value,) if isinstance(value, str) else value
            if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
                refuse(field, f"expected a name or a list of names, got {value!r}")
        elif key == "unless":
            if not isinstance(value, (list, tuple)):
                refuse(field, f"expected a list of tables, got {value!r}")
            for table in value:
                if not isinstance(table, dict):
                    refuse(field, f"expected tables in the list, got {table!r}")
                _check_when({"dists": table}, refuse)
        elif not isinstance(value, dict):
            refuse(field, f"expected a table, got {value!r}")
        elif not all(isinstance(name, str) and name.strip() for name in value):
            refuse(field, f"expected names as keys, got {list(value)!r}")
        elif key == "env":
            for name, wanted in value.items():
                if not isinstance(wanted, (str, bool)):
                    refuse(f"{field}.{name}", f"expected a text, true or false, got {wanted!r}")
        else:
            for name, specifier in value.items():
                _specifier(specifier, f"{field}.{name}", refuse)


def _specifier(value: object, field: str, refuse: _Refuse) -> None:
    if not isinstance(value, str):
        refuse(field, f"expected a version specifier such as '>=2.0,<3', got {value!r}")
    if value:
        from packaging.specifiers import SpecifierSet

        try:
            SpecifierSet(value)
        except (ValueError, RecursionError):
            refuse(field, f"expected a version specifier such as '>=2.0,<3', got {value!r}")


def _requirement(value: str, refuse: _Refuse) -> None:
    from packaging.requirements import Requirement

    try:
        if (marker := Requirement(value).marker) is not None:
            marker.evaluate()  # some can be read and not be answered
    except (ValueError, RecursionError):
        refuse("dist", f"expected a requirement such as 'decord<=0.6.0', got {value!r}")


# --- Rule plug-ins: entry points of other distributions -------------------------------------------

GROUP = "cudaguard.rules"
_HEADER = f"[{GROUP}]".encode()


class Entry(Record):
    """One entry point."""

    module: str  # that it watches
    value: str  # ``package.module:attribute``
    origin: str  # the distribution's folder


# An entry's name is the module that it watches, its value the rule or rules; that is imported when
# the module is. `importlib.metadata` costs several times the start-up budget, so the files are
# searched. Source: https://packaging.python.org/en/latest/specifications/entry-points/


def scan_plugins(path: Iterable[str]) -> dict[str, tuple[Entry, ...]]:
    """Return the entries of all distributions on `path`, by watched module.

    Reads directory listings and small text files; imports nothing. The first of two
    distributions of the same name wins, as it does for ``import``.
    """
    found: dict[str, tuple[Entry, ...]] = {}
    seen: set[str] = set()
    for folder in distributions(dict.fromkeys(name for name in path if isinstance(name, str))):
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


def load_plugin(entry: Entry, *, known: Iterable[str] = ()) -> tuple[Rule, ...]:
    """Import the entry's value and return its rules.

    Raises:
        RuleError: if it is no rule or iterable of rules, or a rule is malformed.
        Exception: whatever importing foreign code raises.
    """
    import importlib

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
