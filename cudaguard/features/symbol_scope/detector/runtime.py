"""An extension that was linked with -static-libstdc++ and shows that runtime to everyone."""

from __future__ import annotations

from cudaguard.core.caller import caller_frame, describe
from cudaguard.errors import ImportOrderError, SymbolScopeWarning
from cudaguard.features.symbol_scope.messages.hijack import static_runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.repair import Engine


def tell_of_runtime(engine: Engine, extension: str, library: str, names: tuple[str, ...]) -> None:
    """Tell of an extension that exports a C++ runtime.

    Args:
        engine: Is told.
        extension: Name of the module.
        library: Its file.
        names: The ``std::...::id`` objects that it exports.

    Raises:
        ImportOrderError: in `strict`.
    """
    frame = caller_frame()
    finding = static_runtime(extension, library, names, describe(frame))
    if engine.tell(finding, SymbolScopeWarning, frame=frame) and engine.mode == "strict":
        raise ImportOrderError(finding.what, name=extension, path=library)
