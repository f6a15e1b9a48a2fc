"""An extension that was linked with -static-libstdc++ and shows that runtime to everyone."""

from __future__ import annotations

from cudaguard.core.caller import caller_frame, describe
from cudaguard.errors import ImportOrderError
from cudaguard.features.symbol_scope.messages.hijack import static_runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.dispatch import Dispatch


class RuntimeDetector:
    """Tells of extensions that export a C++ runtime.

    Args:
        core: Is told.
    """

    def __init__(self, core: Dispatch) -> None:
        self._core = core

    def runtime_exported(self, extension: str, library: str, names: tuple[str, ...]) -> None:
        """Tell of an extension that exports a C++ runtime.

        Args:
            extension: Name of the module.
            library: Its file.
            names: The ``std::...::id`` objects that it exports.

        Raises:
            ImportOrderError: in `strict`.
        """
        frame = caller_frame()
        finding = static_runtime(extension, library, names, describe(frame))
        stop = ImportOrderError(finding.as_error(), name=extension, path=library)
        self._core.reporter.found(finding, frame, stop=stop)
