"""The switches a program uses: ``install``, ``uninstall``, ``guard``, ``status`` and their kin."""

from __future__ import annotations

import sys

from cudaguard.core.lifecycle import activation
from cudaguard.core.registry import entry_of
from cudaguard.core.settings import layer_of_call
from cudaguard.core.table import table
from cudaguard.features import _index
from cudaguard.hooks.caller import note_block

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Self

    from cudaguard.config import Mode
    from cudaguard.core.settings import Layer
    from cudaguard.features.cuda_init.repair import ContextHandle
    from cudaguard.model import Names, Rule, Status

table.use(_index)


class Guard:
    """Handle of the installed guard; as a context manager it uninstalls at the end."""

    @property
    def mode(self) -> str:
        """The mode in force, one of ``off``, ``observe``, ``warn``, ``fix`` and ``strict``."""
        return activation.core.reporter.mode

    def uninstall(self) -> None:
        """Take the guard down (see `cudaguard.uninstall`)."""
        uninstall()

    def __enter__(self) -> Self:
        note_block(sys._getframe(1))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            _look_at(error)
        finally:
            uninstall()

    def __repr__(self) -> str:
        return f"<cudaguard.Guard, mode {self.mode}>"


_guard = Guard()


class GuardBlock:
    """What `guard` returns: the guard is up inside the ``with`` block. May be entered again."""

    _lazy: frozenset[str] = frozenset()

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def __enter__(self) -> Guard:
        note_block(sys._getframe(1))
        try:
            activation.open(self._layer)
        except BaseException:  # a warning made an error by the user: the block is not entered
            activation.close(self._layer)
            raise
        return _guard

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            _look_at(error)
        finally:
            activation.close(self._layer)


def install(
    mode: Mode | None = None,
    *,
    enable: Names = (),
    disable: Names = (),
    rules: Iterable[Rule] = (),
    config: str | os.PathLike[str] | None = None,
    context: int | str | None = None,
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
        context: ``none`` (the default), ``auto`` (create a CUDA context before the first watched
            import whose rule needs one), or a device on which to create one now: its ordinal,
            UUID or PCI bus id. None takes the environment variable ``CUDAGUARD_CONTEXT``, then
            the configuration file. A context that cannot be created is warned of.
        children: Also guard the Python processes that this one starts, by setting
            ``CUDAGUARD`` in its environment.

    Returns:
        The handle of the guard; there is one per process.

    Raises:
        ConfigError: An unknown mode or rule id, or a configuration file that cannot be used.
        RuleError: A malformed rule.
    """
    asked = (mode, enable, disable, rules, config, context, children)
    activation.install(layer_of_call("install()", *asked))
    return _guard


def guard(
    mode: Mode | None = None,
    *,
    enable: Names = (),
    disable: Names = (),
    rules: Iterable[Rule] = (),
    config: str | os.PathLike[str] | None = None,
    context: int | str | None = None,
    children: bool = False,
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
        context: As for `install`; a context that was created stays.
        children: As for `install`, for those that are started inside the block; ``CUDAGUARD`` is
            put back when the last block that wants them guarded is left.

    Raises:
        ConfigError: As for `install`; raised by this call, before the block.
        RuleError: As for `install`; raised by this call, before the block.
    """
    asked = (mode, enable, disable, rules, config, context, children)
    return GuardBlock(layer_of_call("guard()", *asked))


def uninstall() -> None:
    """Take the guard down, open `guard` blocks included; does nothing without a guard.

    Everything that can be put back is put back. What was repaired stays repaired and is listed
    in ``status().changes``.
    """
    activation.clear()


def add_rule(rule: Rule) -> None:
    """Add a rule for the rest of the process, now and after every later `install`.

    Args:
        rule: The rule; one with a known id replaces that rule.

    Raises:
        RuleError: A malformed rule; the message names the field and what was expected.
    """
    from cudaguard.core.rule_check import check_rule

    checked = check_rule(rule, "add_rule()", known=table.rule_ids)
    activation.add((entry_of(checked), "add_rule()"))


def create_context(device: int | str | None = None) -> ContextHandle:
    """Create the primary context of one CUDA device now, and keep it for the life of the process.

    Libraries that use the CUDA runtime (torch, CuPy, decord, TensorRT ...) find it and join it. It
    is not made current: no thread's current context changes. Works with and without `install`.

    Creating a context initializes CUDA: processes forked from this one cannot use it, and
    variables such as ``CUDA_VISIBLE_DEVICES`` count no longer.

    Args:
        device: Ordinal among the visible devices, UUID (``GPU-...``, ``MIG-...``, abbreviated as
            for ``CUDA_VISIBLE_DEVICES``) or PCI bus id; None takes the local rank of this process
            (``LOCAL_RANK`` and its like), and 0 where one device is visible or no launcher is
            there.

    Returns:
        What was created; the same handle for a device that has it already.

    Raises:
        ContextError: It cannot be created: no driver, no such device, a forked child of a process
            that uses CUDA, or any failure of the driver; the message says which, and what to do.
    """
    from cudaguard.features.cuda_init.repair import create

    return create(activation.core, device)


def active_rules() -> tuple[Rule, ...]:
    """Return the rules in force; without a guard, those that `install` would put in force."""
    from cudaguard.core import status as current

    return current.active_rules()


def status() -> Status:
    """Return what the guard is doing and what it has found so far. Looking touches nothing."""
    from cudaguard.core import status as current

    return current.status()


def boot() -> None:
    """Activate because the environment variable says so; for the ``.pth`` line and the launcher.

    Idempotent: ``.pth`` files are processed twice in a virtual environment.
    """
    activation.boot()


def launch() -> None:
    """Activate under ``cudaguard run``, where uncaught errors are looked at as well."""
    from cudaguard.core.record import begin

    end = activation.core.end
    end.look, end.is_wanted = activation.core.error_ends, True
    begin(activation)
    boot()
    if activation.is_up:  # the .pth line was first
        end.install()


def _look_at(error: BaseException | None) -> None:
    if error is not None:
        activation.core.error_passes(error)
