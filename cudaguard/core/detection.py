"""Detectors: made when something comes that they listen to, and left alone when they fail.

Each listens to events by name, of those in CONTRIBUTING.md, and has a net of its own:
one that fails is heard no more, is reported once, and costs the others nothing.
"""

from __future__ import annotations

from cudaguard.hooks.barrier import ON_PURPOSE, is_own_failure, print_instead
from cudaguard.model import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.table import FeatureTable
    from cudaguard.system.loader_list import LoaderList

# Not heard by a detector that says it does not (`hears_loads`), until it has us `wake`.
_EVERY_LOAD = ("before_load", "loaded")


class NativeLoad(NamedTuple):
    """A library or extension that was, or is about to be, mapped."""

    library: str  # its file, or the name given to the loader
    extension: str = ""  # name of the module; empty for a load by ctypes
    is_global: bool = False  # was RTLD_GLOBAL in force?
    flags_by: tuple[str, str] = ("", "")  # module and line of the call that has put it in force


class Detection:
    """The detectors of this process."""

    def __init__(self, core: Any, table: FeatureTable) -> None:
        self._core, self._table = core, table
        self._made: dict[str, Any] = {}  # by entry; None for one that has failed
        self._hears: dict[str, tuple[str, ...]] = {}  # event -> entries
        self._ready: dict[str, tuple[str, ...]] = {}  # the same, of those that hear it now
        self._list: LoaderList | None = None
        self._news = 0  # of the list, that were told
        self.has_begun = False

    def begin(self, known: Any = None) -> None:
        """Begin to look at what is loaded, once; what the kernel's `Loader` knows is no news."""
        from cudaguard.system.loader_list import LoaderNews

        self.has_begun = True
        news = self._list = LoaderNews.everything  # another thread may forget it meanwhile
        if known is not None:
            news.counters = lambda: known.counters()  # noqa: PLW0108  # it becomes another one
        if known is not None and known.last:
            news.begin_at(known.last, known.counted[2])
        self._news = news.changes()
        for entry in self._listeners("begin"):
            try:
                self._tell(entry, "begin")
            except BaseException:  # the program's: it has ended the look, not a fault of ours
                if entry not in self._made or self._made[entry] is not None:
                    self._begin_anew()
                news.begin_at()
                raise
        news.begin_at()

    def _begin_anew(self) -> None:
        """Begin again at the next load: something of the program's has ended the first look."""
        for entry in self._listeners("begin"):
            self._made.pop(entry, None)
        self._ready = {}
        self.has_begun = False

    def publish(self, event: str, *details: Any) -> list[Any]:
        """Tell those who listen to an event; return what they answer, if it is anything.

        What a detector raises on purpose goes out.
        """
        answers = []
        for entry in self._ready.get(event) or self._listeners(event):
            answer = self._tell(entry, event, *details)
            if answer is not None:
                answers.append(answer)
        return answers

    def imported(self, name: str) -> None:
        """Tell those who listen to the import of a module."""
        for entry in self._listeners(f"imported:{name}"):
            self._tell(entry, "imported", name)

    def before_load(self) -> None:
        """Tell of what has changed so far: something is about to be loaded."""
        if self._is_news():
            self.publish("mapped", None)
        if self._listeners("before_load"):
            self.publish("before_load")

    def loaded(self, *details: Any, **more: Any) -> None:
        """Tell those who listen to loads; the arguments are those of `NativeLoad`."""
        load = NativeLoad(*details, **more)
        if self._is_news():
            self.publish("mapped", load)
        if self._listeners("loaded"):
            self.publish("loaded", load)

    def _is_news(self) -> bool:
        """Return True if something is mapped or global that was not at the last look."""
        if self._list is None:
            return False
        known, self._news = self._news, self._list.changes()
        return known != self._news

    def error_passes(self, error: BaseException | None, event: str = "error_passes") -> None:
        """Tell those who listen to errors, or that there is none; the error alone may be raised."""
        told = ("goes_on",) if error is None else (event, error)
        try:
            for entry in self._listeners(told[0]):
                if self._made.get(entry) is not None:  # the others have seen nothing yet
                    self._tell(entry, *told)
        except ON_PURPOSE as warning:
            print_instead(warning)

    def made(self, kind: type) -> Any:
        """Return the detector of a class, None if it was not made, or has failed."""
        return next((made for made in list(self._made.values()) if type(made) is kind), None)

    def forget(self) -> None:
        """Have all of them put back what they have changed; a later look begins anew."""
        made, self._made, self.has_begun = self._made, {}, False
        self._ready, self._list = {}, None
        for detector in made.values():
            self._have_forget(detector)

    def _listeners(self, event: str) -> tuple[str, ...]:
        known = self._ready.get(event)
        if known is not None:
            return known
        if not self._hears:
            hears: dict[str, tuple[str, ...]] = {}
            for entry, events in self._table.index.DETECTORS:
                for heard in events:
                    hears[heard] = (*hears.get(heard, ()), entry)
            self._hears = hears
        found = self._hears.get(event, ())
        # Who looks at what is loaded is made when looking begins, and never if it does not.
        looking = self._hears.get("begin", ())
        if event == "begin":
            return found
        ready = [kind for kind in found if kind not in looking or kind in self._made]
        if event in _EVERY_LOAD:
            ready = [name for name in ready if getattr(self._made.get(name), "hears_loads", True)]
        self._ready[event] = found = tuple(o for o in ready if self._made.get(o, o) is not None)
        return found

    def wake(self) -> None:
        """Ask anew who hears of every load: a detector has begun to."""
        self._ready = {}

    def _tell(self, entry: str, event: str, *details: Any) -> Any:
        try:
            detector = self._made.get(entry, self)
            if detector is None:  # it has failed
                return None
            if detector is self:
                # Threads that come here at once get the same one.
                detector = self._made.setdefault(entry, self._table.resolve(entry)(self._core))
                self._ready = {}
            return getattr(detector, event)(*details)
        except Exception as error:
            if not is_own_failure(error):
                raise
            self._failed(entry, error)
        return None

    def _failed(self, entry: str, error: Exception) -> None:
        """Hear a detector no more: its failure is told once, and costs no repairs."""
        detector, self._made[entry] = self._made.get(entry), None
        self._ready = {}
        self._have_forget(detector)
        self._core.reporter.broken(f"looking at {entry.rpartition('.')[2]}", error)

    def _have_forget(self, detector: Any) -> None:
        """Have a detector put back what it has changed, as far as it can."""
        try:
            if hasattr(detector, "forget"):
                detector.forget()
        except Exception as error:
            if not is_own_failure(error):
                raise
