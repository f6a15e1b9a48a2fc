"""Is a rule well formed? One answer for rules from code, files and plug-ins alike."""

from __future__ import annotations

from cudaguard.errors import RuleError
from cudaguard.model import GRADES, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

# What may stand before the colon of an action, and what must follow it.
ACTION_VERBS = {
    "local_scope": "a file name pattern, as in local_scope:libdecord.so*",
    "provides": "a pattern of library names, as in provides:libtorch*.so*",
    "demote": "a file name pattern, as in demote:libdecord.so*",
    "hide": "names to hide from others, as in hide:zlib, hide:std, hide:*llvm* or hide:*",
    "keep": "names not to hide, as in keep:DECORD*",
    "preload": "a library below site-packages, as in preload:nvidia/nccl/lib/libnccl.so.2",
    "preload_needs": "a library below site-packages, as in preload_needs:pkg/libplugin.so",
    "env": "a default for a variable, as in env:XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "substitute": "a module for the watched one, as in substitute:pycuda.autoprimaryctx",
    "normalize": "a function or method and its parameter, as in normalize:Image.__init__(buffer)",
    "correct": "a class that exports arrays, as in correct:DeviceNDArray",
    "graphs": "see, generation, or a strategy and a name, as in graphs:clone:pkg.Encoder",
    "builds": "check, or lock, with torch.utils.cpp_extension watched, as in builds:check",
    "nvrtc": "newer, with torch watched: nvrtc:newer",
    "ptxas": "newer, with triton watched: ptxas:newer",
    "fusers": "off, with torch watched: fusers:off",
    "deepbind": "a file name pattern of one extension, as in deepbind:my_plugin*.so",
}
# The verbs whose argument is one of these words.
_ARGUMENTS = {
    "builds": ("check", "lock"),
    "fusers": ("off",),
    "nvrtc": ("newer",),
    "ptxas": ("newer",),
}
WHEN_KEYS = ("python", "platform", "machine", "env", "dists")
RESERVED_PREFIX = "CG"


def check_rule(rule: object, origin: str, *, known: Iterable[str] = ()) -> Rule:
    """Return `rule` if it is well formed.

    Args:
        rule: What was given as a rule.
        origin: Where it comes from, for the message: a file, a plug-in, ``add_rule()``.
        known: Identifiers that may be replaced although they are reserved.

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
    for field in ("watch", "dist", "needs", "actions", "links"):
        _strings(getattr(rule, field), field, refuse)
    if not rule.watch:
        refuse("watch", "expected at least one module name")
    for field in ("watch", "needs"):
        for name in getattr(rule, field):
            if not all(part.isidentifier() for part in name.split(".")):
                refuse(field, f"{name!r} is not a module name such as 'torch' or 'nvidia.dali'")
    for name in rule.needs:
        for watched in rule.watch:
            if name == watched:
                refuse("needs", f"{name!r} is also watched by this rule: it cannot precede itself")
            if name.startswith(f"{watched}."):
                refuse("needs", f"{name!r} cannot precede {watched!r}, which Python imports first")
    if rule.grade not in GRADES:
        refuse("grade", f"got {rule.grade!r}, expected one of {', '.join(GRADES)}")
    for action in rule.actions:
        verb, colon, argument = action.partition(":")
        if verb not in ACTION_VERBS or not colon or not argument:
            expected = "; ".join(f"{verb}: {what}" for verb, what in ACTION_VERBS.items())
            refuse("actions", f"got {action!r}, expected verb:argument with one of: {expected}")
        if not _fits(verb, argument):
            refuse("actions", f"got {action!r}, expected {ACTION_VERBS[verb]}")
        if verb.startswith("preload") and (argument.startswith("/") or ".." in argument.split("/")):
            refuse("actions", f"got {action!r}, expected a path below a folder of sys.path")
        if verb in ("local_scope", "demote") and _is_global_on_purpose(argument):
            refuse(
                "actions", f"{action!r}: this library serves others from the global scope; leave it"
            )
    verbs = {action.partition(":")[0] for action in rule.actions}
    if "demote" in verbs and "hide" not in verbs:
        refuse("actions", "demote says of which library, hide must say which names, as in hide:std")
    if verbs & {"hide", "keep"} and "demote" not in verbs:
        refuse("actions", "hide and keep belong to demote:<file name pattern>, which is missing")
    for verb in ("deepbind", "env", "fusers", "graphs", "ptxas", "substitute"):
        if verb in verbs and rule.grade != "opt-in":
            refuse(
                "grade",
                f"{verb} can change what a program does: grade must be 'opt-in', and the rule is "
                "switched on by its id",
            )
    for requirement in rule.dist:
        _requirement(requirement, refuse)
    _check_when(rule.when, refuse)
    return rule


def _fits(verb: str, argument: str) -> bool:
    if verb == "graphs":
        return _is_graphs(argument)
    if verb in ("normalize", "correct"):
        return _is_entry(verb, argument)
    if verb == "env":
        return _is_default(argument)
    if verb == "substitute":
        return all(part.isidentifier() for part in argument.split("."))
    return argument in _ARGUMENTS.get(verb, (argument,))


def _is_entry(verb: str, argument: str) -> bool:
    path, bracket, rest = argument.partition("(")
    parameter, end, after = rest.partition(")")
    has_parameter = bool(end) and not after and parameter.isidentifier()
    is_path = all(part.isidentifier() for part in path.split("."))
    return is_path and (has_parameter if verb == "normalize" else not bracket)


def _is_default(argument: str) -> bool:
    name, equals, _ = argument.partition("=")
    return bool(equals) and name.split() == [name] and "\0" not in argument


def _is_graphs(argument: str) -> bool:
    strategy, _, name = argument.partition(":")
    if strategy in ("see", "generation"):
        return not name
    parts = name.split(".")
    return strategy in ("no-graphs", "clone", "rehome") and all(p.isidentifier() for p in parts)


def _is_global_on_purpose(pattern: str) -> bool:
    from cudaguard.core.patterns import fixed_part, matches
    from cudaguard.system.symbol_families import GLOBAL_ON_PURPOSE

    return matches(fixed_part(pattern), GLOBAL_ON_PURPOSE)


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
        marker = Requirement(value).marker
        if marker is not None:
            marker.evaluate()  # some can be read and not be answered
    except (ValueError, RecursionError):
        refuse("dist", f"expected a requirement such as 'decord<=0.6.0', got {value!r}")


if TYPE_CHECKING:
    from typing import Protocol

    class _Refuse(Protocol):
        def __call__(self, field: str, problem: str) -> NoReturn: ...
