"""The import of a watched module, and the place of our finder on ``sys.meta_path``."""

from __future__ import annotations

import sys
from _frozen_importlib import _find_spec  # type: ignore[attr-defined]  # what asks the finders
from _thread import RLock, _count

from cudaguard.files import standard_library
from cudaguard.hooks.caller import hide_frame, of_import_system
from cudaguard.kernel import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import FrameType, ModuleType
    from typing import Any


# Held while one of ours is put into the list or taken from it: a place that was looked up is then
# still that finder's. A process that was forked meanwhile goes on without it.
_changing = RLock()
_PATIENCE = 1.0  # seconds; others hold it for microseconds
_LONGEST_SEARCH = 30.0  # seconds; a finder that reads files takes milliseconds


class EveryTopLevel(dict[str, object]):
    """The watched names, and besides them every top-level module but Python's own and ours."""

    def __init__(self, watched: Mapping[str, object]) -> None:
        super().__init__(watched)
        self._own = standard_library() | {__name__.partition(".")[0]}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (
            isinstance(name, str) and "." not in name and name not in self._own
        )


# --- Our place on sys.meta_path -------------------------------------------------------------------
#
# The list stays the one it is: the program may hold it. Code that puts a finder before ours finds
# it there, and takes it away by its place. Finders are compared by identity; their __eq__ may say
# anything.


def insert_first(finder: object) -> None:
    """Put a finder before all others; does nothing where it is."""
    if place_of(finder) != 0:
        _change(finder, is_to_be_first=True)


def remove(finder: object) -> None:
    """Take a finder from the list; does nothing if it is not there."""
    _change(finder, is_to_be_first=False)


def _change(finder: object, *, is_to_be_first: bool) -> None:
    finders: list[Any] = sys.meta_path
    is_ours = _changing.acquire(timeout=_PATIENCE)
    try:
        if is_to_be_first and finders and type(finders[0]) is RetiredFinder:
            finders[0] = finder
        elif is_to_be_first:  # a search under way asks somebody twice by that, and passes by nobody
            finders.insert(0, finder)
        _leave(finder, int(is_to_be_first))
    finally:
        if is_ours:
            _changing.release()


def _leave(ours: Any, start: int) -> None:
    finders: list[Any] = sys.meta_path
    for place, finder in enumerate(finders):
        if finder is ours and place >= start:
            ours.retired = RetiredFinder
            finders[place] = RetiredFinder()
            break
    _retire(0)


def _retire(searches: int) -> None:
    """Let those go whose place is needed no more, while this thread has that many searches."""
    for finder in [finder for finder in sys.meta_path if type(finder) is RetiredFinder]:
        if _searches() == searches and finder.is_alone():
            finder.go()


class RetiredFinder:
    """Keeps the place that a finder of ours had, until no search for a module is under way.

    A shorter list would have such a search pass by the next finder, and by what that has. One that
    begins meanwhile is handed on here to all behind, so that it can do without them afterwards.
    Those of other threads are waited for: to follow the frames of a thread that runs may crash.
    """

    def __init__(self) -> None:
        self._leaves_at = monotonic() + _LONGEST_SEARCH

    def is_alone(self) -> bool:
        """Return True if no other thread can be in the middle of a search that began before."""
        return not _count() or monotonic() > self._leaves_at

    @of_import_system
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec the finders behind this one give."""
        spec: ModuleSpec | None = None
        try:
            finders: list[Any] = list(sys.meta_path)  # those in front have been asked already
            start = next((at for at, other in enumerate(finders, 1) if other is self), 0)
            for finder in [other for other in finders[start:] if type(other) is not RetiredFinder]:
                if (find := getattr(finder, "find_spec", None)) is not None:
                    spec = find(name, path, target)
                elif sys.version_info < (3, 12):
                    find = getattr(finder, "find_module", None)
                    if find is not None and find(name, path) is not None:
                        break  # only importlib knows how to use it; it asks again
                if spec is not None:
                    break
        except BaseException as error:
            hide_frame(error)
            raise
        if _is_search(sys._getframe(1)):
            _retire(1)
        return spec

    def go(self) -> None:
        """Leave the list, unless another thread is changing it; then with a later search."""
        if not _changing.acquire(False):
            return
        try:
            place = place_of(self)
            if place >= 0:
                finder: Any = sys.meta_path.pop(place)
                if finder is not self:  # the program has changed the list just now
                    sys.meta_path.insert(place, finder)
        finally:
            _changing.release()


def place_of(finder: object) -> int:
    """Return the place of a finder on ``sys.meta_path``, -1 if it is not there."""
    return next((place for place, other in enumerate(sys.meta_path) if other is finder), -1)


def _searches() -> int:
    """Return how many searches for modules are under way in this thread."""
    count = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        count += _is_search(frame)
        frame = frame.f_back
    return count


def _is_search(frame: FrameType) -> bool:
    return frame.f_code is _find_spec.__code__
