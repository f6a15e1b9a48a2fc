"""What an action may be: declarations of verbs and their typed parameters, and the checker.

An action is a table: one key is a verb, the others are its parameters. Features declare verbs as
data; error messages, the reference and the JSON schema are made from the declarations. What a
built-in rule alone needs is no verb: its feature names the function in `REPAIRS`, and only rules
with a reserved id may ask for it.
"""

from __future__ import annotations

from cudaguard.core.near import closest
from cudaguard.core.table import RESERVED_PREFIX, table
from cudaguard.model import GRADES, KW_ONLY, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cudaguard.model import Rule

    Show = Callable[[object], str]


class Kind(Record):
    """What values a verb or a parameter takes.

    Args:
        expected: The values in words, as errors and the reference name them.
        schema: The values as a JSON schema.
        problem: Returns what else is wrong with a value, or an empty text; it is called for
            texts only.
        fits: Returns False for values of another type or form.
    """

    expected: str
    fits: Callable[[object], bool]
    schema: Mapping[str, Any]
    problem: Callable[[str], str] = lambda _: ""


class Parameter(Record):
    """One parameter of a verb.

    Args:
        name: Its key in the table.
        kind: What values it takes.
        example: A value that fits; proposed where the parameter is missing.
        required: False if it may be left out.
    """

    name: str
    kind: Kind
    example: object
    _: KW_ONLY
    required: bool = True


class Verb(Record):
    """One verb.

    Args:
        name: Its key in the table: verb_object.
        kind: What values it takes.
        example: A value that fits.
        meaning: What the guard does, in one sentence.
        parameters: The further keys.
        does: Moment (see `cudaguard.core.repairs.MOMENTS`) -> the function of the feature that is
            called then, as in ``repair:preload``.
        grades: The grades that a rule with this verb may have.
    """

    name: str
    kind: Kind
    example: object
    meaning: str
    does: Mapping[str, str]
    _: KW_ONLY
    parameters: tuple[Parameter, ...] = ()
    grades: tuple[str, ...] = GRADES


# --- kinds of values -----------------------------------------------------------------------------


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _is_dotted(value: object) -> bool:
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))


def _is_inner_path(value: object) -> bool:
    is_text = isinstance(value, str) and bool(value.strip())
    return is_text and not str(value).startswith("/") and ".." not in str(value).split("/")


def _is_variable(value: object) -> bool:
    is_word = isinstance(value, str) and value.split() == [value]
    return is_word and not {"=", "\0"} & set(str(value))


def _are_texts(value: object) -> bool:
    return _is_text(value) or (
        isinstance(value, tuple) and value != () and all(map(_is_text, value))
    )


def _serves_others(pattern: str) -> str:
    from cudaguard.core.patterns import fixed_part, matches
    from cudaguard.system.symbol_families import GLOBAL_ON_PURPOSE

    if matches(fixed_part(pattern), GLOBAL_ON_PURPOSE):
        return "this library serves others from the global scope; leave it"
    return ""


_TEXT = {"type": "string", "minLength": 1}
_NAME = {"type": "string", "pattern": r"^[^\s.]+$"}
_DOTTED = {"type": "string", "pattern": r"^[^\s.]+(\.[^\s.]+)*$"}

FILE_PATTERN = Kind("a file name pattern", _is_text, _TEXT)
SCOPED_PATTERN = Kind("a file name pattern", _is_text, _TEXT, _serves_others)
LIBRARY_PATH = Kind("a path below a folder of sys.path", _is_inner_path, _TEXT)
LIBRARY = Kind(
    "a path below a folder of sys.path, or the soname of a library in NVIDIA's wheels",
    lambda value: _is_inner_path(value) and ("/" in str(value) or "*" not in str(value)),
    _TEXT,
)
VARIABLE = Kind("the name of an environment variable", _is_variable, _TEXT)
TEXT = Kind(
    "a text without a zero byte",
    lambda value: isinstance(value, str) and "\0" not in value,
    {"type": "string"},
)
TEXTS = Kind(
    "a text or a list of texts",
    _are_texts,
    {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]},
)
MODULE = Kind("the name of a module", _is_dotted, _DOTTED)
FUNCTION = Kind("a function or method of the watched module", _is_dotted, _DOTTED)
CLASS = Kind("a class of the watched module", _is_dotted, _DOTTED)
PARAMETER = Kind("the name of a parameter", _is_name, _NAME)
TARGET = Kind("the full name of a class or function", _is_dotted, _DOTTED)
SWITCH = Kind("true", lambda value: value is True, {"const": True})


# --- which verbs there are -----------------------------------------------------------------------

_known: dict[str, Verb] = {}


def declared() -> Mapping[str, Verb]:
    """Return all verbs by name."""
    if not _known:
        verbs = (verb for entry in table.index.TABLES for verb in table.resolve(entry))
        _known.update((verb.name, verb) for verb in verbs)
    return _known


def verb_of(action: Mapping[str, Any]) -> str:
    """Return the verb of an action of a rule that was checked."""
    return next((key for key in action if key in table.index.VERBS), "")


# --- the checker ---------------------------------------------------------------------------------


def fault_in(action: object, rule: Rule, show: Show) -> tuple[str, str] | None:
    """Return the field of the rule and what is wrong with it, or None for an action that fits.

    Args:
        action: One action of the rule.
        rule: The rule.
        show: Returns a value as the user wrote it: in Python, or in TOML.
    """
    verbs = declared()
    if not isinstance(action, dict):
        example = next(iter(verbs.values()))
        right = show({example.name: example.example})
        return "actions", f"expected a table such as {right}, got {show(action)}"
    found = [key for key in action if key in verbs]
    if rule.id.startswith(RESERVED_PREFIX) and not found and verb_of(action):
        return None  # a function of its feature
    if len(found) != 1:
        return "actions", f"got {show(action)}: {_wrong_verbs(action, found, show)}"
    verb = verbs[found[0]]
    wrong = _wrong_value(verb, action, show)
    if wrong:
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
        close = closest(key, verbs)
        if close:
            right = show(_corrected(verbs[close], {**action, close: value}))
            return f"{key!r} is not a verb; did you mean {right}?"
    return f"no key is a verb; expected one of {', '.join(verbs)}"


def _wrong_value(verb: Verb, action: dict[Any, Any], show: Show) -> str:
    """Return what is wrong with the values and parameters of an action, or ""."""
    kinds = {verb.name: verb.kind, **{item.name: item.kind for item in verb.parameters}}
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
            return f"{parameter.name!r} is missing, {parameter.kind.expected}; for example {right}"
    return ""


def _corrected(verb: Verb, action: Mapping[Any, Any]) -> dict[str, object]:
    """Return the table that was probably meant; it fits."""
    value = action.get(verb.name)
    table = {verb.name: value if verb.kind.fits(value) else verb.example}
    known = [parameter.name for parameter in verb.parameters]
    # A key that is nearly a parameter's gives its value.
    meant = {closest(key, known): action[key] for key in action if key not in known}
    for parameter in verb.parameters:
        value = action.get(parameter.name, meant.get(parameter.name))
        if parameter.kind.fits(value):
            table[parameter.name] = value
        elif parameter.required:
            table[parameter.name] = parameter.example
    return table


# --- as text -------------------------------------------------------------------------------------


def python_text(value: object) -> str:
    """Return a value as Python code."""
    return repr(_unfrozen(value))


def toml_text(value: object) -> str:
    """Return a value as TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"')
        safe = (one if one >= " " and one != "\x7f" else f"\\u{ord(one):04x}" for one in text)
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


def _unfrozen(value: object) -> object:
    if isinstance(value, dict):
        return {key: _unfrozen(item) for key, item in value.items()}
    return list(map(_unfrozen, value)) if isinstance(value, tuple) else value
