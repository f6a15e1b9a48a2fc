"""A library of the machine's that was taken although the environment has a later one.

Searches that go by the names of releases, from old to new, find what was not installed for this
program. NVIDIA's own search is to look into the environment first: where it has not, it is told.
"""

from __future__ import annotations

import sys

from cudaguard.core.caller import caller_frame, frame_outside
from cudaguard.features.duplicate_libraries.messages import duplicates as wording
from cudaguard.files import os, ours
from cudaguard.system.runtimes import runtime_of, stem_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.features.duplicate_libraries.policy.duplicates import Copy

SEARCHES = ("cuda.pathfinder", "cuda.bindings.path_finder")


def judge_searches(core: Dispatch, copies: Iterable[Copy]) -> None:
    """Tell of libraries that such a search has loaded past those of the environment.

    Args:
        core: Is told.
        copies: What has just been loaded.
    """
    for copy in copies:
        if f"{copy.by}.".startswith(tuple(f"{one}." for one in SEARCHES)):
            later = _later_in_environment(copy)
            if later:
                title = runtime_of(copy.stem).title
                frame = frame_outside(caller_frame())
                core.reporter.found(wording.past_environment(copy, later, title), frame)


def _later_in_environment(copy: Copy) -> str:
    """Return the file of a later release in an environment of conda's, empty if there is none."""
    prefix = os.path.realpath(sys.prefix)
    is_own = copy.path.startswith((f"{prefix}/", *(f"{entry}/" for entry in sys.path if entry)))
    if is_own or not os.path.isdir(f"{prefix}/conda-meta"):
        return ""
    try:
        names = os.listdir(f"{prefix}/lib")
    except ours(OSError):
        return ""
    own = _release(copy.soname)
    found = {_release(name): name for name in names if stem_of(name) == copy.stem}
    last = max(found, default=0)
    return f"{prefix}/lib/{found[last]}" if own and last > own else ""


def _release(name: str) -> int:
    """Return the number after ``.so``, 0 if there is none."""
    word = name.partition(".so.")[2].partition(".")[0]
    return int(word) if word.isdecimal() else 0
