"""Settings: the words of the environment variables and of the configuration file.

Every reader here returns a value or raises `ConfigError`; who may let that error
reach a program, and who only reports it, is decided by the caller.
"""

from __future__ import annotations

import os
import sys

from cudaguard.errors import ConfigError
from cudaguard.files import read_bytes
from cudaguard.model import KW_ONLY, MODE_VARIABLE, MODES, TYPE_CHECKING, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal, TypeVar

    T = TypeVar("T")
    Mode = Literal["off", "observe", "warn", "fix", "strict"]

RULES_VARIABLE = "CUDAGUARD_RULES"
CONFIG_VARIABLE = "CUDAGUARD_CONFIG"
JOURNAL_VARIABLE = "CUDAGUARD_JOURNAL"
PLUGINS_VARIABLE = "CUDAGUARD_PLUGINS"
CONTEXT_VARIABLE = "CUDAGUARD_CONTEXT"
WATCH_VARIABLE = "CUDAGUARD_WATCH"

FILE_KEYS = ("mode", "enable", "disable", "journal", "plugins", "context", "watch", "rules")
FILE_LIMIT = 1 << 20  # bytes; a larger file is a mistake (a device, a data set), not settings

# The first one that is set says which rank of this machine a launcher made this process.
LOCAL_RANK_VARIABLES = (
    "LOCAL_RANK",  # torchrun and its like
    "OMPI_COMM_WORLD_LOCAL_RANK",  # Open MPI
    "MPI_LOCALRANKID",  # Intel MPI
    "MV2_COMM_WORLD_LOCAL_RANK",  # MVAPICH
    "PALS_LOCAL_RANKID",  # HPE Cray
    "FLUX_TASK_LOCAL_ID",
    "JSM_NAMESPACE_LOCAL_RANK",  # IBM's jsrun
    "SLURM_LOCALID",
)

_MODE_WORDS: dict[str, Mode] = {
    **dict.fromkeys(("off", "0", "false", "no"), "off"),
    "observe": "observe",
    "warn": "warn",
    **dict.fromkeys(("fix", "1", "on", "true", "yes"), "fix"),
    "strict": "strict",
}
MOST_DEVICES = 1 << 16
_NO = ("0", "false", "no", "off")


class Settings(Record):
    """Settings of one source (the environment, a file); None or empty where it says nothing."""

    source: str  # where this was said, for messages
    _: KW_ONLY
    mode: Mode | None = None  # one of `MODES`
    switches: Mapping[str, bool] = {}  # rule id -> enabled or disabled
    journal: str = ""  # path of the journal; ``%p`` stands for the process id
    plugins: bool | None = None  # False forbids rule plug-ins
    context: str | None = None  # ``none``, ``auto`` or a device, as `parse_context` returns it
    watch: tuple[str, ...] = ()  # further modules to watch, as `parse_watch` returns them
    config: str = ""  # path of the configuration file to read as well
    tables: tuple[Mapping[str, Any], ...] = ()  # the raw ``[[rules]]`` tables of a file


def parse_mode(value: object, source: str) -> Mode:
    """Return the mode that `value` names."""
    mode = _MODE_WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    if mode is None:
        raise ConfigError(
            f"{source}: unknown mode {value!r}; expected one of {', '.join(MODES)} "
            "(or 0, false, no for off; 1, on, true, yes for fix)"
        )
    return mode


def parse_context(value: object, source: str) -> str:
    """Return ``none``, ``auto``, or the number of a device in words.

    Whether there is such a device is not known here.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_DEVICES:
        return str(value)
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("none", "auto") and not word.isdecimal():
        raise ConfigError(f"{source}: got {value!r}; expected none, auto, or a device's number")
    return word


def parse_watch(value: object, source: str) -> tuple[str, ...]:
    """Return module names; the name ``*`` stands for every top-level module, as ``all`` does."""
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{source}: got {value!r}, expected 'all' or a list of module names")
    for name in value:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(f"{source}: {name!r} is not a module name such as 'mylib'")
    return ("*",) if "all" in value else tuple(value)


def parse_switches(enable: object, disable: object, source: str) -> dict[str, bool]:
    """Return rule id -> wanted state from two lists of ids; none may stand in both."""
    switches: dict[str, bool] = {}
    for name, value, state in (("enable", enable, True), ("disable", disable, False)):
        if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
            raise ConfigError(f"{source}: {name}: expected a list of rule ids, got {value!r}")
        for id in value:
            if not isinstance(id, str) or not id.strip():
                raise ConfigError(f"{source}: {name}: expected a rule id, got {id!r}")
            if switches.get(id.strip(), state) is not state:
                raise ConfigError(f"{source}: rule {id!r} is both enabled and disabled")
            switches[id.strip()] = state
    return switches


def read_environment(environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Return what the ``CUDAGUARD*`` variables say, and what in them could not be used."""
    problems: list[str] = []

    def parsed(variable: str, parse: Callable[[object, str], T]) -> T | None:
        value = environ.get(variable, "").strip()
        try:
            return parse(value, variable) if value else None
        except ConfigError as error:
            problems.append(str(error))
            return None

    switches: dict[str, bool] = {}
    for item in environ.get(RULES_VARIABLE, "").replace(",", " ").split():
        if item[0] in "+-" and len(item) > 1:
            switches[item[1:]] = item[0] == "+"
        else:
            problems.append(
                f"{RULES_VARIABLE}: got {item!r}, expected +ID to enable "
                "or -ID to disable, as in +LOCAL002,-CG001"
            )
    plugins = environ.get(PLUGINS_VARIABLE, "").strip().lower()
    settings = Settings(
        "the environment",
        mode=parsed(MODE_VARIABLE, parse_mode),
        switches=switches,
        journal=environ.get(JOURNAL_VARIABLE, ""),
        plugins=plugins not in _NO if plugins else None,
        context=parsed(CONTEXT_VARIABLE, parse_context),
        watch=parsed(WATCH_VARIABLE, parse_watch) or (),
        config=environ.get(CONFIG_VARIABLE, ""),
    )
    return settings, problems


def read_file(path: object) -> Settings:
    """Read a configuration file: ``cudaguard.toml``, or any TOML file with ``[tool.cudaguard]``."""
    try:
        name = os.path.expanduser(os.fsdecode(path))  # type: ignore[arg-type]  # refused below
        text = read_bytes(name, FILE_LIMIT).decode("utf-8-sig")
    except TypeError:
        raise ConfigError(f"config: expected the path of a TOML file, got {path!r}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: expected a TOML file in UTF-8: {error}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: cannot read the configuration file: {error}") from None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers that are too long for int()
        raise ConfigError(f"{name}: not a valid TOML file: {error}") from None
    if "tool" in document or os.path.basename(name) == "pyproject.toml":
        tool = document.get("tool")
        table = tool.get("cudaguard") if isinstance(tool, dict) else None
        if not isinstance(table, dict):
            raise ConfigError(f"{name}: expected a table [tool.cudaguard]")
        document = table
    return _from_table(document, name)


def _from_table(table: Mapping[str, Any], name: str) -> Settings:
    for key in table:
        if key not in FILE_KEYS:
            raise ConfigError(
                f"{name}: unknown key {key!r}; expected one of {', '.join(FILE_KEYS)}"
            )
    journal = table.get("journal", "")
    if not isinstance(journal, str):
        raise ConfigError(f"{name}: journal: expected a path, got {journal!r}")
    plugins = table.get("plugins")
    if plugins is not None and not isinstance(plugins, bool):
        raise ConfigError(f"{name}: plugins: expected true or false, got {plugins!r}")
    tables = table.get("rules", [])
    if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
        raise ConfigError(f"{name}: rules: expected tables, each headed [[rules]]")
    return Settings(
        name,
        mode=parse_mode(table["mode"], f"{name}: mode") if "mode" in table else None,
        switches=parse_switches(table.get("enable", []), table.get("disable", []), name),
        journal=journal,
        plugins=plugins,
        context=parse_context(table["context"], f"{name}: context") if "context" in table else None,
        watch=parse_watch(table.get("watch", []), f"{name}: watch"),
        tables=tuple(tables),
    )


def local_rank(environ: Mapping[str, str]) -> int | None:
    """Return the local rank of this process; None without a launcher, or if it is no number."""
    for variable in LOCAL_RANK_VARIABLES:
        if value := environ.get(variable, "").strip():
            return int(value) if value.isdecimal() else None
    return None
