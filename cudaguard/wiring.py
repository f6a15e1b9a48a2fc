"""Switching the guard on and off: ``install``, ``uninstall``, ``guard``, ``status``, boot.

What is in force is computed from the open layers anew at every change, so that blocks may be
left in any order and the last one to be left restores what was there before.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock

from cudaguard.config import MODE_VARIABLE
from cudaguard.engine import Engine
from cudaguard.errors import CudaGuardWarning, ImportOrderWarning
from cudaguard.layers import BUILT_IN_IDS, Layer, combine, layer_of_call
from cudaguard.model import Status
from cudaguard.rules.check import check_rule
from cudaguard.rules.registry import Registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from cudaguard.layers import InForce, Sourced
    from cudaguard.model import Rule
    from cudaguard.rules.plugins import Entry


class _State:
    """What `install` and its kin change. The lock is never held while foreign code runs."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.base: Layer | None = None
        self.blocks: list[tuple[object, Layer]] = []
        self.added: list[Sourced] = []  # by add_rule() and by plug-ins that were hit
        self.plugins: dict[str, tuple[Entry, ...]] | None = None  # None: not looked for yet
        self.exported = ""  # the mode that install(children=True) put into the environment
        self.exported_over: str | None = None  # what stood there before
        self._lock = RLock()
        self._pid = os.getpid()

    @property
    def lock(self) -> RLock:
        # A fork copies the lock as another thread may have held it: a child begins anew.
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), RLock()
        return self._lock


_state = _State()


class Guard:
    """Handle of the installed guard; as a context manager it uninstalls at the end."""

    @property
    def mode(self) -> str:
        """The mode in force: ``off``, ``observe``, ``warn``, ``fix`` or ``strict``."""
        return _state.engine.mode

    def uninstall(self) -> None:
        """Take the guard down (see `cudaguard.uninstall`)."""
        uninstall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        uninstall()

    def __repr__(self) -> str:
        return f"<cudaguard.Guard, mode {self.mode}>"


_guard = Guard()


class GuardBlock:
    """What `guard` returns: the guard is up inside the ``with`` block. May be entered again."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._tokens: list[object] = []

    def __enter__(self) -> Guard:
        token = object()
        with _state.lock:
            _state.blocks = [*_state.blocks, (token, self._layer)]
        self._tokens.append(token)
        try:
            _apply()
            _warn_of_lazy_imports()
        except BaseException:  # a warning made an error by the user: the block is not entered
            self.__exit__(None, None, None)
            raise
        return _guard

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        token = self._tokens.pop()
        with _state.lock:
            _state.blocks = [entry for entry in _state.blocks if entry[0] is not token]
        _apply()


def install(
    mode: str | None = None,
    *,
    enable: Iterable[str] = (),
    disable: Iterable[str] = (),
    rules: Iterable[Rule] = (),
    config: str | os.PathLike[str] | None = None,
    children: bool = False,
) -> Guard:
    """Put the guard up for the rest of the process.

    Idempotent: a second call returns the same handle, applies its mode and switches, and adds
    its rules. ``CUDAGUARD=off`` in the environment keeps the guard down whatever is asked for.

    Args:
        mode: ``off``, ``observe``, ``warn``, ``fix`` or ``strict``; None takes the
            environment variable ``CUDAGUARD``, then the configuration file, then ``fix``.
        enable: Ids of opt-in rules to switch on.
        disable: Ids of rules to switch off.
        rules: Further rules; one with a known id replaces that rule.
        config: A ``cudaguard.toml``, or a TOML file with ``[tool.cudaguard]``; None takes
            the file named by the environment variable ``CUDAGUARD_CONFIG``.
        children: Also guard the Python processes that this one starts, by setting
            ``CUDAGUARD`` in its environment.

    Returns:
        The handle of the guard; there is one per process.

    Raises:
        ConfigError: An unknown mode or rule id, or a configuration file that cannot be used.
        RuleError: A malformed rule.
    """
    layer = layer_of_call("install()", mode, enable, disable, rules, config)
    with _state.lock:
        _state.base = layer.over(_state.base or Layer())
    _apply()
    if children and _state.engine.mode != "off":
        with _state.lock:
            if not _state.exported:
                _state.exported_over = os.environ.get(MODE_VARIABLE)
            _state.exported = os.environ[MODE_VARIABLE] = _state.engine.mode
    return _guard


def guard(
    mode: str | None = None,
    *,
    enable: Iterable[str] = (),
    disable: Iterable[str] = (),
    rules: Iterable[Rule] = (),
    config: str | os.PathLike[str] | None = None,
) -> GuardBlock:
    """Return a context manager that has the guard up inside its block, as before outside it.

    Process-wide and counted: blocks nest, may overlap in several threads and may be left in any
    order. What was repaired inside the block stays repaired. An `install` called inside the
    block is not undone by leaving it.

    Args:
        mode: As for `install`.
        enable: As for `install`.
        disable: As for `install`.
        rules: As for `install`.
        config: As for `install`.

    Raises:
        ConfigError: As for `install`; raised by this call, before the block.
        RuleError: As for `install`; raised by this call, before the block.
    """
    return GuardBlock(layer_of_call("guard()", mode, enable, disable, rules, config))


def uninstall() -> None:
    """Take the guard down, open `guard` blocks included; does nothing without a guard.

    Everything that can be put back is put back. What was repaired stays repaired and is listed
    in ``status().touched``.
    """
    with _state.lock:
        _state.base, _state.blocks = None, []
        ours, _state.exported = _state.exported, ""
        if ours and os.environ.get(MODE_VARIABLE) == ours:
            if _state.exported_over is None:
                del os.environ[MODE_VARIABLE]
            else:
                os.environ[MODE_VARIABLE] = _state.exported_over
    _apply()


def add_rule(rule: Rule) -> None:
    """Add a rule for the rest of the process, now and after every later `install`.

    Args:
        rule: The rule; one with a known id replaces that rule.

    Raises:
        RuleError: A malformed rule; the message names the field and what was expected.
    """
    checked = check_rule(rule, "add_rule()", known=BUILT_IN_IDS)
    with _state.lock:
        _state.added = [*_state.added, (checked, "add_rule()")]
    _apply()


def active_rules() -> tuple[Rule, ...]:
    """Return the rules in force; without a guard, those that `install` would put in force."""
    if _state.engine.mode != "off":
        return _state.engine.registry.rules
    would = combine((Layer(),), _state.added, _environment())
    return Registry(would.rules, would.switches).rules


def status() -> Status:
    """Return what the guard is doing and what it has found so far. Looking touches nothing."""
    engine = _state.engine
    up = engine.mode != "off"
    if up:
        engine.check_bypassed()
    exported = (f"os.environ[{MODE_VARIABLE!r}]",) if _state.exported else ()
    return Status(
        engine.mode,
        watched=sorted(engine.finder.watched),
        events=engine.journal.events,
        findings=tuple(engine.channel.findings),
        rules=engine.registry.rules if up else (),
        touched=(*engine.in_place(), *exported, *engine.touched),
    )


def boot() -> None:
    """Activate because the environment variable says so; for the ``.pth`` line and the launcher.

    Idempotent: ``.pth`` files are processed twice in a virtual environment.
    """
    if _state.base is None:
        _state.base = Layer(alone=True)
        _apply()


def _apply() -> None:
    """Bring the process in line with the open layers."""
    engine = _state.engine
    with _state.lock:
        before = engine.mode
        layers = [layer for layer in (_state.base, *(b for _, b in _state.blocks)) if layer]
        wanted = combine(layers, _state.added, _environment())
        if wanted.mode == "off":
            engine.take_down()
        else:
            engine.journal.write_to(wanted.journal)
            _find_plugins(wanted, at_boot=all(layer.alone for layer in layers))
            _configure(wanted)
            engine.put_up()
    # From here on foreign code may run: metadata, warnings, the user's filters.
    if engine.mode != before:
        engine.journal.note("uninstall" if engine.mode == "off" else "install", engine.mode)
    if layers:
        _report(wanted)
    for name in engine.registry.by_module if engine.mode != "off" else ():
        if name in sys.modules:
            engine.check_late(name)


def _environment() -> Mapping[str, str]:
    """Return the environment as the user left it, without the mode we exported ourselves."""
    if not _state.exported or os.environ.get(MODE_VARIABLE) != _state.exported:
        return os.environ
    return {**os.environ, MODE_VARIABLE: _state.exported_over or ""}


def _configure(wanted: InForce) -> None:
    registry = Registry(wanted.rules, wanted.switches)
    _state.engine.configure(wanted.mode, registry, tuple(_state.plugins or ()))


def _report(wanted: InForce) -> None:
    if not wanted.problems:
        return
    from cudaguard.report import messages

    for problem in wanted.problems:
        new = _state.engine.tell(messages.bad_setting(problem), CudaGuardWarning, loud=True)
        if new and wanted.mode == "strict":
            _state.engine.deferred.append(problem)


def _find_plugins(wanted: InForce, *, at_boot: bool) -> None:
    engine = _state.engine
    if not wanted.plugins:
        _state.plugins = None
        engine.on_first_hit = engine.load_plugins = None
    elif at_boot and _state.plugins is None:
        # Other .pth files are not processed yet: sys.path is not complete.
        engine.on_first_hit = _scan_and_publish
    else:
        if _state.plugins is None:
            _scan()
        engine.load_plugins = _load_plugins if _state.plugins else None


def _scan() -> None:
    from cudaguard.rules.plugins import scan

    try:
        _state.plugins = scan(sys.path)
    except Exception as error:
        _state.plugins = {}
        _state.engine.broken("looking for rule plug-ins", error)


def _scan_and_publish() -> None:
    with _state.lock:
        _scan()
        _state.engine.load_plugins = _load_plugins if _state.plugins else None
    _apply()


def _load_plugins(name: str) -> None:
    """Add the rules of the plug-ins for a module that is about to be imported."""
    plugins = _state.plugins or {}
    entries = plugins.pop(name, ())  # taken out first: the plug-in may import the module itself
    if not entries:
        return
    from cudaguard.report import messages
    from cudaguard.rules.plugins import load

    for entry in entries:
        try:
            rules = load(entry, known=BUILT_IN_IDS)
        except (Exception, SystemExit) as error:
            finding = messages.plugin_failed(entry.value, name, error)
            _state.engine.tell(finding, CudaGuardWarning)
            continue
        with _state.lock:
            origin = f"plug-in {entry.value}"
            _state.added = [*_state.added, *((rule, origin) for rule in rules)]
    _apply()


def _warn_of_lazy_imports() -> None:
    from cudaguard.hook.lazy import everything_is_lazy

    if everything_is_lazy() and _state.engine.mode != "off":
        from cudaguard.report import messages

        _state.engine.tell(messages.lazy_imports_on(), ImportOrderWarning)
