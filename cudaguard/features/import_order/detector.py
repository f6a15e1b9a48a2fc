"""LD_LIBRARY_PATH that was set in the running process, where it has no effect."""

from __future__ import annotations

from cudaguard.core.caller import caller_frame, describe
from cudaguard.elf.process import at_start
from cudaguard.errors import LateEnvironmentWarning
from cudaguard.features.cuda_init.messages import search_path_too_late
from cudaguard.files.calls import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.repair import Engine


def tell_of_late_path(engine: Engine, missing: str, said: str) -> None:
    """Tell, if a library that was not found lies in a folder that was added too late.

    Args:
        engine: Is told.
        missing: The library, as the loader names it.
        said: The variable as it is now.
    """
    if os.sep in missing:  # a path: the variable has no part in that
        return
    read = at_start("LD_LIBRARY_PATH").split(":")
    late = [folder for folder in said.split(":") if folder and folder not in read]
    name = os.path.basename(missing)
    found = next((f for f in late if os.path.exists(os.path.join(f, name))), None)
    if found is not None:
        frame = caller_frame()
        finding = search_path_too_late(name, found, describe(frame))
        engine.tell(finding, LateEnvironmentWarning, frame=frame)
