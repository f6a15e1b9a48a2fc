"""Every error and warning the guard can hand to a program.

An error says what happened, where, what was expected and what to do.
"""

from __future__ import annotations


class CudaGuardError(Exception):
    """Base of every error raised on purpose by the guard."""


class ImportOrderError(CudaGuardError, ImportError):
    """A watched module could not be imported in a safe order (``strict`` mode only)."""


class ExtensionError(CudaGuardError, ImportError):
    """A compiled extension cannot be loaded: the message says why, and what to do.

    It is raised from the ``ImportError`` of the dynamic loader, whose words it keeps. ``name`` and
    ``path`` are those of the extension, as in any ``ImportError``.
    """


class RuleError(CudaGuardError, ValueError):
    """A rule is malformed: the message names the rule, its origin, the field and what fits."""


class ConfigError(CudaGuardError, ValueError):
    """A mode, a rule id or a configuration file cannot be used: the message says why."""


class ContextError(CudaGuardError, RuntimeError):
    """A CUDA context could not be created: the message says why, and what to do."""


class ArrayInterfaceError(CudaGuardError, TypeError):
    """An array cannot be handed over as it is: no producer, or one that must not be guessed at.

    Args:
        message: Whose array, and all of the following in one or two sentences.
        field: The entry of the dictionary at fault, or ``__cuda_array_interface__`` itself.
        value: That entry, in short.
        rule: What the specification, or the consumer, asks for.
        remedy: What to do.
    """

    def __init__(
        self, message: str, *, field: str = "", value: str = "", rule: str = "", remedy: str = ""
    ) -> None:
        super().__init__(message)
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy


class GraphError(CudaGuardError, RuntimeError):
    """The outputs of a compiled callable cannot be made safe in the way that was asked for."""


class CudaGuardWarning(UserWarning):
    """Base of every warning of the guard; filter on this class to catch them all."""


class ImportOrderWarning(CudaGuardWarning):
    """Modules were, or had to be, imported in an unsafe order."""


class SymbolScopeWarning(CudaGuardWarning):
    """A library put its symbols where other libraries will bind to them by mistake."""


class ExtensionWarning(CudaGuardWarning):
    """A compiled extension cannot be loaded."""


class ArrayInterfaceWarning(CudaGuardWarning):
    """A consumer does not heed something that an array says of itself."""


class ContextWarning(CudaGuardWarning):
    """A CUDA context is on the wrong device, is not the shared one, or could not be created."""


class ForkWarning(CudaGuardWarning):
    """A forked process uses CUDA, which its parent had initialized."""


class GraphWarning(CudaGuardWarning):
    """A tensor of a CUDA graph is, or will be, overwritten while somebody holds it."""


class LateEnvironmentWarning(CudaGuardWarning):
    """An environment variable was set after it had been read for good."""


for _kind in [kind for kind in vars().values() if isinstance(kind, type)]:
    _kind.__module__ = "cudaguard"  # shown as ``cudaguard.X``: the name that users import
