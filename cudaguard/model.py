"""Values with named fields, and the words that stand for modes and grades.

Classes of our own rather than dataclasses: they are imported on the first line of a program, and
``dataclasses`` alone would cost several times the whole start-up budget.
"""

from __future__ import annotations

from _operator import itemgetter  # light: `operator` is not

TYPE_CHECKING = False
if TYPE_CHECKING:
    import dataclasses
    import functools
    from inspect import Signature
    from typing import Any, ClassVar, Literal
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414  # it is handed on

    from typing_extensions import Self, dataclass_transform

    KW_ONLY = dataclasses.KW_ONLY
    lazy = functools.cached_property
    Grade = Literal["automatic", "opt-in", "report"]
    Severity = Literal["info", "warning", "error"]
else:
    KW_ONLY = None

    class NamedTuple(tuple):
        """As `typing.NamedTuple`, whose module costs more than the whole guard at its start."""

        __slots__ = ()
        _fields, _defaults = (), {}

        def __init_subclass__(cls):
            cls._fields = names = tuple(getattr(cls, "__annotations__", ()))
            cls._defaults = {name: vars(cls)[name] for name in names if name in vars(cls)}
            for place, name in enumerate(names):
                setattr(cls, name, property(itemgetter(place)))

        def __new__(cls, *given, **named):
            """Return one with the fields as they are given, by place or by name."""
            if named or len(given) != len(cls._fields):
                values, rest = {**cls._defaults, **named}, cls._fields[len(given) :]
                if not values.keys() >= set(rest) or not set(rest) >= named.keys():
                    raise TypeError(f"{cls.__name__}() takes {', '.join(cls._fields)}")
                given += tuple(values[name] for name in rest)
            return tuple.__new__(cls, given)

        def _asdict(self):
            return dict(zip(self._fields, self))

        def _replace(self, **changes):
            return type(self)(**{**self._asdict(), **changes})

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({fields})"

    class lazy:  # noqa: N801  # as property
        """As `functools.cached_property`, whose lock a forked child may find taken (until 3.12)."""

        # Not by __set_name__: before 3.12 Python makes a RuntimeError of what ends that.
        def __init__(self, read):
            self._read = read

        def __get__(self, owner, _):
            # Threads that come here at once get the same one.
            return vars(owner).setdefault(self._read.__name__, self._read(owner))

    def dataclass_transform(**_):
        """Return a decorator that does nothing."""
        return lambda kind: kind


MODES = ("off", "observe", "warn", "fix", "strict")
MODE_VARIABLE = "CUDAGUARD"  # of the environment
GRADES = ("automatic", "opt-in", "report")
SEVERITIES = ("info", "warning", "error")


class _SignatureOf:
    def __get__(self, record: Record | None, kind: type[Record]) -> Signature:
        from inspect import Parameter, Signature

        parameters, by_name = [], False
        for name, type in kind._types.items():
            by_name = by_name or name == "_"
            if name != "_":
                how = Parameter.KEYWORD_ONLY if by_name else Parameter.POSITIONAL_OR_KEYWORD
                default = kind._defaults.get(name, Parameter.empty)
                parameters.append(Parameter(name, how, default=default, annotation=type))
        return Signature(parameters)


@dataclass_transform(frozen_default=True)
class Record:
    """An immutable value, compared and shown field by field.

    The annotations of a class are its fields, in the order of the arguments; those that follow
    ``_: KW_ONLY`` are given by name.
    """

    _types: ClassVar[dict[str, str]] = {}
    _fields: ClassVar[tuple[str, ...]] = ()  # sorted, so that documents are stable
    _defaults: ClassVar[dict[str, Any]] = {}
    __signature__ = _SignatureOf()

    def __init_subclass__(cls) -> None:
        types = cls._types = {**cls._types, **cls.__annotations__}
        own = vars(cls)
        cls._fields = tuple(sorted(types.keys() - {"_"}))
        cls._defaults = {**cls._defaults, **{name: own[name] for name in types if name in own}}

    def __init__(self, *given: Any, **named: Any) -> None:
        kind = type(self)
        placed = dict(zip(kind._types, given))  # with `_`, if one too many is given
        values = {**kind._defaults, **placed, **named}
        if values.keys() != {*kind._fields} or len(given) > len(placed.keys() - named):
            raise _refusal(kind, given, named)
        self._complete(values)
        self.__dict__.update(values)

    @staticmethod
    def _complete(values: dict[str, Any]) -> None:
        """Change the values before they are kept."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only; use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only")

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        return type(self)(**{**self._values(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain lists, dictionaries, strings and numbers (JSON-ready)."""
        return {name: plain(value) for name, value in self._values().items()}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._values() == other._values()

    def __hash__(self) -> int:
        # Strings alone: equal tables may differ in order and in how they show themselves.
        texts = (value for value in self._values().values() if isinstance(value, str))
        return hash((type(self), *texts))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> tuple[object, ...]:
        from functools import partial

        return partial(type(self), **self._values()), ()


def _refusal(kind: type[Record], given: tuple[Any, ...], named: dict[str, Any]) -> TypeError:
    places = [*kind._types, "_"]
    places = places[: min(len(given), places.index("_"))]
    wrong = {
        "too many arguments": given[len(places) :],
        "given twice": named.keys() & places,
        "unknown": named.keys() - {*kind._fields},
        "missing": {*kind._fields}.difference(places, named, kind._defaults),
    }
    words = (f"{how}: {', '.join(sorted(map(repr, what)))}" for how, what in wrong.items() if what)
    return TypeError(f"{kind.__name__}(): {'; '.join(words)}")


def plain(value: object) -> object:
    """Return a value as JSON has it."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value
