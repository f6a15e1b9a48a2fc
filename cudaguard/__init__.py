"""Run-time import-order guard for Python programs that mix CUDA libraries.

.. code-block:: python

    import cudaguard
    cudaguard.install()            # first lines of the program

Every public name is imported when it is first used: importing the package loads one module.

PYTEST_DONT_REWRITE: pytest would warn, or fail, where the guard is up before pytest starts.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from cudaguard.api import GuardBlock as GuardBlock
    from cudaguard.api import active_rules as active_rules
    from cudaguard.api import add_rule as add_rule
    from cudaguard.api import create_context as create_context
    from cudaguard.api import guard as guard
    from cudaguard.api import status as status
    from cudaguard.api import uninstall as uninstall
    from cudaguard.config import Mode
    from cudaguard.core.checks import CheckResult as CheckResult
    from cudaguard.core.findings import Event as Event
    from cudaguard.core.findings import Finding as Finding
    from cudaguard.core.findings import Status as Status
    from cudaguard.core.rule import Names
    from cudaguard.core.rule import Rule as Rule
    from cudaguard.elf.forecast import ExtensionCheck as ExtensionCheck
    from cudaguard.errors import *  # noqa: F403  # all of them are public
    from cudaguard.features.array_interface.functions import normalize as normalize
    from cudaguard.features.array_interface.functions import validate as validate
    from cudaguard.features.cuda_graphs.functions import graph_safe as graph_safe
    from cudaguard.features.cuda_init.repair import ContextHandle as ContextHandle
    from cudaguard.features.cuda_init.repair import Device as Device
    from cudaguard.kernel import Guard as Guard
    from cudaguard.system.extensions import check_extension as check_extension
    from cudaguard.tools.explain import explain as explain

# Module -> the public names in it.
_NAMES = {
    "api": "GuardBlock active_rules add_rule create_context guard status uninstall",
    "core.checks": "CheckResult",
    "core.findings": "Event Finding Status",
    "core.rule": "Rule",
    "elf.forecast": "ExtensionCheck",
    "errors": "ArrayInterfaceError ArrayInterfaceWarning ConfigError ContextError ContextWarning "
    "CudaGuardError CudaGuardWarning ExtensionError ExtensionWarning ForkWarning GraphError "
    "GraphWarning ImportOrderError ImportOrderWarning LateEnvironmentWarning RuleError "
    "SymbolScopeWarning",
    "features.array_interface.functions": "normalize validate",
    "features.cuda_graphs.functions": "graph_safe",
    "features.cuda_init.repair": "ContextHandle Device",
    "kernel": "Guard",
    "system.extensions": "check_extension",
    "tools.explain": "explain",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
# By these names IPython finds what `%load_ext cudaguard` is to do; not for programs.
_HOOKS = dict.fromkeys(("load_ipython_extension", "unload_ipython_extension"), "tools.ipython")

__all__ = ["install"]
__all__ += list(_HOMES)


def install(
    mode: "Mode | None" = None,
    *,
    enable: "Names" = (),
    disable: "Names" = (),
    rules: "Iterable[Rule]" = (),
    config: "str | os.PathLike[str] | None" = None,
    context: "int | str | None" = None,
    children: bool = False,
) -> "Guard":
    """Install the guard for the rest of the process.

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
            import whose rule needs one), or the number of a device on which to create one now.
            None takes the environment variable ``CUDAGUARD_CONTEXT``, then the configuration
            file. A context that cannot be created is warned of.
        children: Also guard the Python processes that this one starts, by setting
            ``CUDAGUARD`` in its environment.

    Returns:
        The handle of the guard; there is one per process.

    Raises:
        ConfigError: An unknown mode or rule id, or a configuration file that cannot be used.
        RuleError: A malformed rule.
    """
    from cudaguard import kernel

    return kernel.install(mode, enable, disable, rules, config, context, children)


if not TYPE_CHECKING:  # a type checker must see the names above, not "anything goes"

    def __getattr__(name):
        home = _HOMES.get(name) or _HOOKS.get(name)
        if home is None:
            raise AttributeError(f"module 'cudaguard' has no attribute {name!r}")
        if home == "kernel":
            from cudaguard import kernel as module
        else:
            from cudaguard.hooks.own_imports import load

            if home.startswith(("api", "features.", "tools.")):
                from cudaguard.kernel import wake

                wake(f"cudaguard.{name}")  # which hands the features to the core
            module = load(f"cudaguard.{home}")
        value = getattr(module, name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
