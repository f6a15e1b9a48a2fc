"""Sees that two files of one library came into this process, or another than was meant.

After each load only what is new is looked at: the names of libraries, and what those with folders
of their own ask for.
"""

from __future__ import annotations

import sys

from cudaguard.elf.process import Image, Memory, entries, first_entry, identity, library_path
from cudaguard.elf.reader import DT_RPATH, DT_RUNPATH
from cudaguard.elf.search_path import Place
from cudaguard.files import os, own_errors
from cudaguard.hooks.caller import caller_frame, describe, frame_outside, module_of
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import has_kernel_driver
from cudaguard.system.loader_list import LoaderNews, Turn
from cudaguard.system.runtimes import IN_PARTS, LIBRARY_PATH, Copy, Stray, first_of_each, stem_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.elf.process import Library
    from cudaguard.features.duplicate_libraries.judgement import CudnnRequirements

# Why nobody saw who loaded a library, in words that follow its path.
SINCE = {
    "guard": "was there before the guard",
    "unseen": "was loaded past Python's importer and ctypes.CDLL",
}


class DuplicateDetector:
    """Remembers who has loaded which library of `cudaguard.system.runtimes`."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._news = LoaderNews()
        # By path and dynamic section, in the order in which they were mapped.
        self._copies: dict[tuple[str, int], Copy] = {}
        self._known: set[tuple[str, int]] = set()
        self._reported: set[tuple[str, ...]] = set()
        self._turn = Turn()
        self._requirements: CudnnRequirements | None = None

    def begin(self) -> None:
        """Look for the first time; what it finds was not seen to come (see `SINCE`)."""
        self.mapped(None, "guard")

    def imported(self, _: str) -> None:
        """Look whether cuDNN is as new as those want that were imported."""
        if has_kernel_driver():  # nothing opens it elsewhere
            from cudaguard.features.duplicate_libraries.judgement import CudnnRequirements

            if self._requirements is None:
                self._requirements = CudnnRequirements(self._core)
            self._requirements.judge(self._copies.values())

    def mapped(self, load: NativeLoad | None, since: str = "unseen") -> None:
        """Look once at what is new, and tell of what is there twice; `since`: why no load is known.

        Raises:
            ImportOrderError: in `strict`, from an import.
        """
        found = self._turn.take(lambda: self._update(load, since))
        if found is None:
            return
        copies, related, strays = found
        if related or strays:
            from cudaguard.features.duplicate_libraries.judgement import judge

            judge(self._core, copies, related, strays, self._reported, is_load=load is not None)

    def _update(
        self, load: NativeLoad | None, since: str
    ) -> tuple[list[Copy], list[Copy], list[Stray]]:
        """Return all that is in the table, what is new of it, and what has gone astray.

        What is new only where one has its like in the process.
        """
        there = {(lib.path, lib.dynamic): lib for lib in self._news.libraries()}
        new = [lib for key, lib in there.items() if key not in self._known]
        if there and self._news.is_whole:
            self._known.clear()  # of what was unloaded: who goes on loading must not grow by it
        self._known.update(there)
        if not new or not (self._copies or any(stem_of(os.path.basename(lib.path)) for lib in new)):
            return [], [], []
        with Memory() as memory:
            images = list(_images(new, memory))
            related = dict(self._copies_among(images, load, since))
            self._copies.update(related)
            pairs = ((a, b) for a in related.values() for b in self._copies.values() if a is not b)
            if any(a.is_like(b) or (a.is_part_with(b) and a.folder != b.folder) for a, b in pairs):
                self._forget_unloaded(memory)
            else:
                related = {}
            strays = list(self._strays_among(images, load, since)) if self._copies else []
        related = {key: copy for key, copy in related.items() if key in self._copies}
        return list(self._copies.values()), list(related.values()), strays

    def _copies_among(
        self, images: list[tuple[Library, Image]], load: NativeLoad | None, since: str
    ) -> Iterator[tuple[tuple[str, int], Copy]]:
        who: tuple[str, str] | None = None
        for lib, image in images:
            if stem := stem_of(lib.path[lib.path.rfind("/") + 1 :]):
                try:
                    soname = image.soname or os.path.basename(lib.path)
                except own_errors(OSError):  # unloaded meanwhile
                    continue
                by, how = who = who or _loaded_by(self._core, load, since)
                # Without the detours by which the loader came there: `cv2/../opencv.libs/`.
                folder, name = os.path.split(lib.path)
                path = os.path.join(os.path.realpath(folder), name)
                yield (lib.path, lib.dynamic), Copy(path, stem, soname, identity(path), by, how)

    def _strays_among(
        self, images: list[tuple[Library, Image]], load: NativeLoad | None, since: str
    ) -> Iterator[Stray]:
        first = first_of_each(self._copies.values())
        for lib, image in images:
            try:
                own = self._copies.get((lib.path, lib.dynamic))
                is_after_variable = DT_RPATH not in image.tags or DT_RUNPATH in image.tags
                if own and own.stem in IN_PARTS and is_after_variable:
                    yield from self._parts_to_come(own)
                asked = [first[name] for name in image.needed if name in first]
                place = Place(lib.path, image, None) if asked else None
                folders = (place.runpath or place.rpath) if place else ()
            except own_errors(OSError):  # unloaded meanwhile, or no library as others are
                continue
            for copy in asked:
                meant = _found(copy.soname, folders)
                known = identity(meant) if meant else copy.identity
                if known != copy.identity:
                    wanted = Copy(meant, copy.stem, copy.soname, known, "", "")
                    yield Stray(lib.path, _loaded_by(self._core, load, since)[1], copy, wanted)

    def _parts_to_come(self, copy: Copy) -> Iterator[Stray]:
        """Return a part that will be opened by name, and be found elsewhere than beside it.

        The variable goes before the folders that a library with DT_RUNPATH, or none, leads to.
        """
        if not (folders := library_path()):
            return
        folder, release = os.path.dirname(copy.path), copy.soname.partition(".so")[2]
        there = {other.soname for other in self._copies.values()}
        for name in sorted(os.listdir(folder)):
            if name.startswith(f"{copy.stem}_") and name.endswith(f".so{release}"):
                path, found = os.path.join(folder, name), _found(name, folders)
                if name not in there and found and identity(found) != identity(path):
                    how = f"will be found first, as its folder is in {LIBRARY_PATH}"
                    wrong = Copy(found, stem_of(name), name, identity(found), copy.by, how)
                    meant = Copy(path, wrong.stem, name, identity(path), "", "")
                    yield Stray(copy.path, copy.how, wrong, meant, is_part=True)
                    return

    def _forget_unloaded(self, memory: Memory) -> None:
        libraries = (library for _, library in entries(memory, first_entry()))
        there = {(library.path, library.dynamic) for library in libraries if library.path}
        self._known &= there
        self._copies = {key: copy for key, copy in list(self._copies.items()) if key in there}


def _images(libraries: list[Library], memory: Memory) -> Iterator[tuple[Library, Image]]:
    for library in libraries:
        try:
            yield library, Image(memory, library)
        except own_errors(OSError):  # unloaded meanwhile, or no library as others are
            continue


def _found(name: str, folders: Iterable[str]) -> str:
    """Return the file of a library in the first folder that has it, empty if none has."""
    return next(filter(os.path.exists, (f"{folder}/{name}" for folder in folders)), "")


def _loaded_by(core: Dispatch, load: NativeLoad | None, since: str) -> tuple[str, str]:
    """Return the module that loads what is new, if that was seen, and words that follow a path."""
    if load is None:
        # The extension that is being mapped, from within which another load has come.
        step: FrameType | None = sys._getframe() if since == "unseen" else None
        guarded, by = core.extensions.load.__code__, ""
        passed = [stand_in.ours.__code__ for stand_in in core.kernel.stand_ins[:1]]
        while step is not None and not by:
            local = step.f_locals if step.f_code is guarded or step.f_code in passed else {}
            if local.get("mapping") or local.get("core", core) is None:  # what comes before is over
                by = getattr(local["spec"], "name", "")
            step = step.f_back
        return by, f"came with {by}, which was just being imported" if by else SINCE[since]
    frame = caller_frame()
    place, outside = describe(frame) or "somewhere", describe(frame_outside(frame))
    by = load.extension or module_of(frame)
    how = f"came with {by}" if load.extension else f"was loaded by {by or 'the program'}"
    return by, f"{how} ({place}), imported at {outside}" if outside else f"{how} ({place})"
