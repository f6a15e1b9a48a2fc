"""The switches a program uses: ``install``, ``uninstall``, ``guard``, ``status`` and their kin."""

from __future__ import annotations

import sys

from cudaguard.core.lifecycle import activation
from cudaguard.core.registry import entry_of
from cudaguard.core.table import table
from cudaguard.features import _index
from cudaguard.hooks.barrier import ask
from cudaguard.hooks.caller import note_block
from cudaguard.kernel import GUARD, kernel
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Any

    from cudaguard.config import Mode
    from cudaguard.core.findings import Status
    from cudaguard.core.registry import Layer
    from cudaguard.core.rule import Names, Rule
    from cudaguard.features.cuda_init.repair import ContextHandle
    from cudaguard.kernel import Guard

table.use(_index)
activation.core.kernel = kernel


class GuardBlock:
    """Context manager of `guard`: installs the guard for its block; it may be entered again."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def __enter__(self) -> Guard:
        note_block(sys._getframe(1))
        try:
            activation.open(self._layer)
        except BaseException:  # a warning made an error by the user: the block is not entered
            activation.close(self._layer)
            raise
        return GUARD

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave(error, lambda: activation.close(self._layer))


def install(*asked: Any) -> None:
    """Install the guard with settings; the arguments are those of `cudaguard.kernel.install`."""
    activation.install(_layer("install()", *asked))


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
    """Return a context manager that installs the guard inside its block; outside it is as before.

    Process-wide and counted: blocks nest, may overlap in several threads and may be left in any
    order. What was repaired inside the block stays repaired. An `install` called inside the
    block is not undone by leaving it.

    The arguments are those of `install`. A context that was created stays. With ``children``,
    ``CUDAGUARD`` is put back when the last block that wants them guarded is left.

    Raises:
        ConfigError: As for `install`; raised by this call, before the block.
        RuleError: As for `install`; raised by this call, before the block.
    """
    return GuardBlock(_layer("guard()", *(mode, enable, disable, rules, config, context, children)))


def _layer(*asked: Any) -> Layer:
    from cudaguard.core.settings import layer_of_call

    return layer_of_call(*asked)


def uninstall() -> None:
    """Uninstall the guard, open `guard` blocks included; does nothing without a guard.

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

    activation.add((entry_of(check_rule(rule, "add_rule()", known=table.rule_ids)), "add_rule()"))


def create_context(device: int | None = None) -> ContextHandle:
    """Create the primary context of one CUDA device now, and keep it for the life of the process.

    Libraries that use the CUDA runtime (torch, CuPy, decord, TensorRT ...) find it and join it. It
    is not made current: no thread's current context changes. Works with and without `install`.

    Creating a context initializes CUDA: processes forked from this one cannot use it, and
    variables such as ``CUDA_VISIBLE_DEVICES`` count no longer.

    Args:
        device: Number among the visible devices (``CUDA_VISIBLE_DEVICES`` takes UUIDs); None takes
            the local rank of this process (``LOCAL_RANK`` and its like), and 0 where one device is
            visible or no launcher is there.

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
    return activation.active_rules()


def status() -> Status:
    """Return what the guard is doing and what it has found so far. Looking touches nothing."""
    return activation.status()


def boot() -> None:
    """Activate because the environment variable says so; for the ``.pth`` line and the launcher.

    Idempotent: ``.pth`` files are processed twice in a virtual environment.
    """
    activation.boot()


def launch() -> None:
    """Activate under ``cudaguard run``, where uncaught errors are looked at as well."""
    from cudaguard.core.record import begin

    end = activation.core.end
    end.on_end, end.is_wanted = activation.core.error_ends, True
    begin(activation)
    boot()
    if activation.core.is_installed:  # the .pth line was first
        end.install()


def leave(error: BaseException | None, end: Callable[[], None] = uninstall) -> None:
    """Look at the error that leaves a ``with`` block, if one does, and end the block."""
    try:
        if error is not None:
            ask(activation.core, "looking at an error", activation.core.error_passes, error)
    finally:
        end()
