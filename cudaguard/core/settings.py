"""Settings of callers, the environment and files, and what is in force when they are combined.

Each `install` and each open `guard` block is one layer. Precedence, strongest first: the kill
switch ``CUDAGUARD=off``, the newest layer's argument, the environment, the file, ``fix``.
"""

from __future__ import annotations

from cudaguard import config
from cudaguard.core.registry import InForce, Layer, built_in, entry_of
from cudaguard.core.table import RESERVED_PREFIX, table
from cudaguard.errors import ConfigError, RuleError
from cudaguard.model import MODE_VARIABLE, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cudaguard.core.registry import RuleEntry, Sourced


def layer_of_call(
    origin: str,
    mode: object,
    enable: object,
    disable: object,
    rules: Iterable[object],
    path: object,
    context: object = None,
    children: bool = False,
) -> Layer:
    """Return the layer that a call of `install` or `guard` asks for; raises as these do."""
    switches = config.parse_switches(enable, disable, origin)
    if isinstance(rules, (str, bytes)) or not hasattr(rules, "__iter__"):
        raise RuleError(f"{origin}: rules: expected a list of cudaguard.Rule, got {rules!r}")
    return Layer(
        None if mode is None else config.parse_mode(mode, f"{origin}: mode"),
        known_switches(switches, origin),
        tuple((_checked(rule, origin), origin) for rule in rules),
        None if path is None else checked_file(path),
        None if context is None else config.parse_context(context, f"{origin}: context"),
        children=children,
    )


def checked_file(path: object) -> config.Settings:
    """Return what a configuration file says; raises what is wrong with it."""
    file = config.read_file(path)
    _rules_of(file)
    known_switches(file.switches, file.source)
    return file


def _checked(rule: object, origin: str) -> RuleEntry:
    from cudaguard.core.rule_check import check_rule  # most programs bring no rules

    return entry_of(check_rule(rule, f"{origin}: rules", known=table.rule_ids))


def combine(
    layers: Sequence[Layer], added: Iterable[Sourced], environ: Mapping[str, str]
) -> InForce:
    """Return what is in force when the layers (oldest first) meet the environment."""
    variables, problems = config.read_environment(environ)
    switches: dict[str, bool] = {}
    rules: list[Sourced] = built_in()
    asked = Layer()
    for layer in layers:
        asked = layer.over(asked)
    file = asked.file
    try:
        if file is None and variables.config:
            file = config.read_file(variables.config)
        if file is not None:
            of_file = _rules_of(file)
            switches.update(known_switches(file.switches, file.source))
            rules += of_file
    except (ConfigError, RuleError) as error:
        problems.append(str(error))
        file = None
    except ImportError as error:  # one of our dependencies is missing
        source = variables.config if file is None else file.source
        problems.append(f"{source}: cannot be read in this environment: {error}")
        file = None
    file = file or config.Settings("no file")
    for id, state in variables.switches.items():  # one that cannot be used must not cost the others
        try:
            switches.update(known_switches({id: state}, config.RULES_VARIABLE))
        except ConfigError as error:
            problems.append(str(error))

    word = environ.get(MODE_VARIABLE, "").strip()
    if variables.mode == "off" or not layers:
        mode = "off"
    elif word and variables.mode is None and all(layer.alone for layer in layers):
        mode = "off"  # an unknown word in the variable that alone activates us
    else:
        mode = asked.mode or variables.mode or file.mode or "fix"
    return InForce(
        mode,
        {**switches, **asked.switches},
        (*rules, *added, *asked.rules),
        variables.journal or file.journal,
        (file.plugins if variables.plugins is None else variables.plugins) is not False,
        asked.context or variables.context or file.context or "none",
        (*variables.watch, *file.watch),
        # Who has switched us off hears nothing of us.
        () if variables.mode == "off" else tuple(problems),
    )


def mode_for_child(asked: str | None, environ: Mapping[str, str]) -> str:
    """Return the mode of a program that is to be started under the guard.

    ``CUDAGUARD=off`` in its environment beats the mode `asked` on the command line, of which a
    ConfigError says that there is none.
    """
    mode = None if asked is None else config.parse_mode(asked, "--mode")
    return combine((Layer(mode),), (), environ).mode


def known_switches(switches: Mapping[str, bool], source: str) -> Mapping[str, bool]:
    """Refuse reserved ids that nobody has; another id may belong to a plug-in not hit yet."""
    for id in switches:
        if not id.upper().startswith(RESERVED_PREFIX) or id in table.rule_ids:
            continue
        if id in table.index.IDS:
            if switches[id]:
                raise ConfigError(f"{source}: {id!r} is a detector: on, unless it is disabled")
            continue
        if id.upper() in table.rule_ids or id.upper() in table.index.IDS:
            raise ConfigError(f"{source}: rule {id!r} is not known; write {id.upper()!r}")
        rules, detectors = (
            f"{min(ids)} to {max(ids)}" for ids in (table.rule_ids, table.index.IDS)
        )
        from cudaguard.files.text import closest_id

        detected = () if switches[id] else tuple(table.index.IDS)  # these cannot be enabled
        near = closest_id(id, (*table.rule_ids, *detected))
        meant = f"did you mean {near!r}? Expected is" if near else "expected"
        raise ConfigError(
            f"{source}: rule {id!r} is not known; {meant} one of {rules}, which `cudaguard rules "
            f"list` shows, or of the detectors, {detectors}"
        )
    return switches


def _rules_of(file: config.Settings) -> list[Sourced]:
    if not file.tables:
        return []
    from cudaguard.core.rule_check import rules_from_tables

    found = rules_from_tables(file.tables, file.source, known=table.rule_ids)
    return [(entry_of(rule), file.source) for rule in found]
