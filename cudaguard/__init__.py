"""Run-time import-order guard for Python programs that mix CUDA libraries.

.. code-block:: python

    import cudaguard
    cudaguard.install()            # first lines of the program

Every public name is imported when it is first used: importing the package loads one module.

PYTEST_DONT_REWRITE: pytest would warn, or fail, where the guard is up before pytest starts.
"""

from __future__ import annotations

import sys

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.api import GuardBlock as GuardBlock
    from cudaguard.api import active_rules as active_rules
    from cudaguard.api import add_rule as add_rule
    from cudaguard.api import create_context as create_context
    from cudaguard.api import guard as guard
    from cudaguard.api import status as status
    from cudaguard.api import uninstall as uninstall
    from cudaguard.core.checks import CheckResult as CheckResult
    from cudaguard.elf.forecast import ExtensionCheck as ExtensionCheck
    from cudaguard.errors import ArrayInterfaceError as ArrayInterfaceError
    from cudaguard.errors import ArrayInterfaceWarning as ArrayInterfaceWarning
    from cudaguard.errors import ConfigError as ConfigError
    from cudaguard.errors import ContextError as ContextError
    from cudaguard.errors import ContextWarning as ContextWarning
    from cudaguard.errors import CudaGuardError as CudaGuardError
    from cudaguard.errors import CudaGuardWarning as CudaGuardWarning
    from cudaguard.errors import ExtensionError as ExtensionError
    from cudaguard.errors import ExtensionWarning as ExtensionWarning
    from cudaguard.errors import ForkWarning as ForkWarning
    from cudaguard.errors import GraphError as GraphError
    from cudaguard.errors import GraphWarning as GraphWarning
    from cudaguard.errors import ImportOrderError as ImportOrderError
    from cudaguard.errors import ImportOrderWarning as ImportOrderWarning
    from cudaguard.errors import LateEnvironmentWarning as LateEnvironmentWarning
    from cudaguard.errors import RuleError as RuleError
    from cudaguard.errors import SymbolScopeWarning as SymbolScopeWarning
    from cudaguard.features.array_interface.functions import normalize as normalize
    from cudaguard.features.array_interface.functions import validate as validate
    from cudaguard.features.cuda_graphs.functions import graph_safe as graph_safe
    from cudaguard.features.cuda_init.repair import ContextHandle as ContextHandle
    from cudaguard.features.cuda_init.repair import Device as Device
    from cudaguard.kernel import Guard as Guard
    from cudaguard.kernel import install as install
    from cudaguard.model import Event as Event
    from cudaguard.model import Finding as Finding
    from cudaguard.model import Rule as Rule
    from cudaguard.model import Status as Status
    from cudaguard.system.extensions import check_extension as check_extension
    from cudaguard.tools.known import explain as explain

_HOMES = {
    "ArrayInterfaceError": "errors",
    "ArrayInterfaceWarning": "errors",
    "CheckResult": "core.checks",
    "ConfigError": "errors",
    "ContextError": "errors",
    "ContextHandle": "features.cuda_init.repair",
    "ContextWarning": "errors",
    "CudaGuardError": "errors",
    "CudaGuardWarning": "errors",
    "Device": "features.cuda_init.repair",
    "Event": "model",
    "ExtensionCheck": "elf.forecast",
    "ExtensionError": "errors",
    "ExtensionWarning": "errors",
    "Finding": "model",
    "ForkWarning": "errors",
    "GraphError": "errors",
    "GraphWarning": "errors",
    "Guard": "kernel",
    "GuardBlock": "api",
    "ImportOrderError": "errors",
    "ImportOrderWarning": "errors",
    "LateEnvironmentWarning": "errors",
    "Rule": "model",
    "RuleError": "errors",
    "Status": "model",
    "SymbolScopeWarning": "errors",
    "active_rules": "api",
    "add_rule": "api",
    "check_extension": "system.extensions",
    "create_context": "api",
    "explain": "tools.known",
    "graph_safe": "features.cuda_graphs.functions",
    "guard": "api",
    "install": "kernel",
    "normalize": "features.array_interface.functions",
    "status": "api",
    "uninstall": "api",
    "validate": "features.array_interface.functions",
}

# By these names IPython finds what `%load_ext cudaguard` is to do; not for programs.
_HOOKS = dict.fromkeys(("load_ipython_extension", "unload_ipython_extension"), "tools.ipython")

__all__ = [
    "ArrayInterfaceError",
    "ArrayInterfaceWarning",
    "CheckResult",
    "ConfigError",
    "ContextError",
    "ContextHandle",
    "ContextWarning",
    "CudaGuardError",
    "CudaGuardWarning",
    "Device",
    "Event",
    "ExtensionCheck",
    "ExtensionError",
    "ExtensionWarning",
    "Finding",
    "ForkWarning",
    "GraphError",
    "GraphWarning",
    "Guard",
    "GuardBlock",
    "ImportOrderError",
    "ImportOrderWarning",
    "LateEnvironmentWarning",
    "Rule",
    "RuleError",
    "Status",
    "SymbolScopeWarning",
    "active_rules",
    "add_rule",
    "check_extension",
    "create_context",
    "explain",
    "graph_safe",
    "guard",
    "install",
    "normalize",
    "status",
    "uninstall",
    "validate",
]

if not TYPE_CHECKING:  # a type checker must see the names above, not "anything goes"

    def __getattr__(name):
        home = _HOMES.get(name) or _HOOKS.get(name)
        if home is None:
            raise AttributeError(f"module 'cudaguard' has no attribute {name!r}")
        from cudaguard import kernel

        if home != "kernel":
            if home.startswith(("api", "features.", "tools.")):
                kernel.wake(f"cudaguard.{name}")  # which hands the features to the core
            kernel.load(f"cudaguard.{home}")
        value = getattr(sys.modules[f"cudaguard.{home}"], name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
