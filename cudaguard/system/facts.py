"""Facts that rules are conditioned on, looked up when a rule asks, and comparisons of versions.

Versions are compared by means of ``packaging``, unless they are plain numbers.
"""

from __future__ import annotations

import sys

from cudaguard.files import LARGEST, names_in, os, own_errors, program_errors, read_bytes
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import peek

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from importlib.metadata import Distribution
    from types import ModuleType
    from typing import Any

    Versions = Callable[[str], "str | None"]

_HEADERS = ("METADATA", "PKG-INFO")
_METADATA = ("dist-info", "egg-info", "egg")  # the ends of their names, as in foo-1.0.dist-info
# Releases that fit one another, which their metadata do not say: the table of torchcodec's README.
PAIRS = tuple({"torchcodec": codec, "torch": torch} for codec, torch in (
    (">=0.12", ">=2.11"), ("==0.11.*", "==2.11.*"), ("==0.10.*", "==2.10.*"),
    (">=0.8,<0.10", "==2.9.*"), (">=0.6,<0.8", "==2.8.*"), (">=0.3,<0.6", "==2.7.*"),
    ("==0.2.*", "==2.6.*"), ("==0.1.*", "==2.5.*"), ("<0.1", "==2.4.*"),
))  # fmt: skip


class Facts:
    """This process, as far as rules may depend on it. Versions are remembered per object."""

    python = ".".join(map(str, sys.version_info[:3]))  # as in 3.11.7
    platform = sys.platform
    environ: Mapping[str, str] = os.environ  # as Python sees it now
    machine = (
        os.uname().machine if os.name == "posix" else os.environ.get("PROCESSOR_ARCHITECTURE", "")
    )

    def __init__(self) -> None:
        self._versions: dict[str, str | None] = {}

    def version(self, dist: str) -> str | None:
        """Return the version of an installed distribution, None if it is not installed."""
        if dist not in self._versions:
            self._versions[dist] = next(iter(_said_by(dist, "version")), None)
        return self._versions[dist]


def requires_of(dist: str) -> Sequence[str]:
    """Return what an installed distribution requires, in its words; nothing if that is unknown."""
    return _said_by(dist, "requires-dist")


def _said_by(dist: str, field: str) -> Sequence[str]:
    # Nothing where it is not installed, or its metadata are broken: no file, no version, not UTF-8.
    try:
        folder = _metadata_folder(dist) if dist else ""
        if folder is None:
            return [*filter(None, _elsewhere(_folded(dist), field))]
        text = read_bytes(f"{folder}/METADATA", LARGEST).decode() if folder else ""
        return [*filter(None, fields_of(text).get(field, ()))]
    except program_errors(Exception):  # a rule must be certain to act
        return ()


def _metadata_folder(dist: str) -> str | None:
    """Return the ``.dist-info`` folder, "" if there is none; None if only Python itself can say.

    ``importlib.metadata`` takes 40 ms to import, with ``email``, ``random``, ``socket`` and others.
    """
    own = sys.modules["_frozen_importlib_external"].PathFinder
    if any(finder is not own and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return None
    wanted = _folded(dist)
    for entry in sys.path:
        if type(entry) is not str or entry.lower().endswith(".egg") or os.path.isfile(entry):
            return None
        for name in names_in(entry or "."):
            stem, _, kind = name.lower().rpartition(".")
            if kind in _METADATA and _folded(stem.partition("-")[0]) == wanted:
                return os.path.join(entry, name) if kind == "dist-info" else None
    return ""


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def fields_of(metadata: str) -> dict[str, list[str]]:
    """Return what metadata say, by the fields' names in lower case, without the readme below."""
    found: dict[str, list[str]] = {}
    fields = metadata.replace("\r\n", "\n").partition("\n\n")[0]
    for line in fields.replace("\n ", " ").replace("\n\t", " ").split("\n"):
        name, _, said = line.partition(":")
        found.setdefault(name.lower(), []).append(said.strip(" \t"))
    return found


def _elsewhere(dist: str, field: str) -> Sequence[str]:
    # Not importlib_metadata, whose import takes Python's own finder of distributions away for good;
    # and not `distribution`, which reads the metadata to choose one in Python 3.15.
    from importlib.metadata import Distribution

    for found in map(bounded, Distribution.discover(name=dist, path=searched())):
        return [found.version] if field == "version" else found.requires or ()
    return ()


def searched() -> list[str]:
    """Return the folders and archives of ``sys.path``; pipes and devices would be opened, too."""
    texts = (folder for folder in sys.path if isinstance(folder, str))
    return [folder for folder in texts if os.path.isdir(folder or ".") or os.path.isfile(folder)]


def bounded(dist: Distribution) -> Distribution:
    """Return a distribution that reads its metadata within bounds, if they are files.

    What should be metadata may be a pipe that nobody feeds, or a link to ``/dev/zero``. A readme
    below its headers is left out: parsing it takes longest.
    """
    folder: Any = getattr(dist, "_path", None)

    def read_text(filename: str) -> str | None:
        try:
            text = read_bytes(folder.joinpath(filename), LARGEST).decode()
        except own_errors(
            FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError
        ):
            return None  # as the method that this replaces
        return text.partition("\n\n")[0] if filename in _HEADERS else text

    if isinstance(folder, os.PathLike):  # one in a zip file is none
        vars(dist)["read_text"] = read_text  # all of its properties call it
    return dist


# --- Versions and ranges --------------------------------------------------------------------------

_SIGNS = {"==": "eq", "!=": "ne", "<=": "le", ">=": "ge", "<": "lt", ">": "gt"}


def in_range(version: str, specifier: str) -> bool:
    """Return True if `version` is inside `specifier`; pre-releases and local versions count.

    A version that PEP 440 does not know is in no range: a rule must be certain to act.
    """
    answer = _of_numbers(version, specifier)
    if answer is not None:
        return answer
    versions = _part_of_packaging("version")
    try:
        parsed = versions.Version(version)
    except versions.InvalidVersion:
        return False
    specifiers = _part_of_packaging("specifiers").SpecifierSet(specifier)
    return bool(specifiers.contains(parsed, prereleases=True))


def _of_numbers(version: str, specifier: str) -> bool | None:
    # The answer where only numbers are compared, without packaging, which takes 8 ms to import.
    own, answer = numbers_of(version.partition("+")[0]), True
    for clause in map(str.strip, specifier.split(",")):
        wanted = clause.lstrip("<>=!")
        sign, is_prefix = clause[: len(clause) - len(wanted)], wanted.endswith(".*")
        other = numbers_of(wanted[:-2] if is_prefix else wanted.strip())
        if not own or not other or sign not in _SIGNS:
            return None
        size = len(other) if is_prefix else max(len(own), len(other))
        ours, theirs = ((*numbers, *[0] * size)[:size] for numbers in (own, other))
        answer = answer and getattr(ours, f"__{_SIGNS[sign]}__")(theirs)
    return answer


def numbers_of(text: str) -> tuple[int, ...]:
    """Return a version as numbers; empty if a part of it is none."""
    words = text.split(".")
    return tuple(map(int, words)) if all(word.isdecimal() for word in words) else ()


def requirement_met(requirement: str, version_of: Versions) -> bool:
    """Return True if the required distribution is installed in a matching version."""
    name = required_name(requirement)
    version = version_of(name)
    if version is None:  # the most frequent answer, without the parser
        return False
    wanted = requirement.strip()[len(name) :]
    if not {*"([;@"}.isdisjoint(wanted):  # the whole grammar: to import it takes 15 ms
        parsed = _part_of_packaging("requirements").Requirement(requirement)
        if parsed.marker is not None and not parsed.marker.evaluate():
            return False
        wanted = str(parsed.specifier)
    return not wanted.strip() or in_range(version, wanted)


def unmet_by(package: str) -> tuple[str, str]:
    """Return what a package requires and has in another version, and that version; or nothing."""
    version_of = Facts().version
    for text in requires_of(package):
        asked, _, marker = map(str.strip, text.partition(";"))
        name = required_name(asked)
        is_meant = marker in ("", f'extra == "{name}"')  # tensorflow-cpu, in place of tensorflow
        if is_meant and (has := version_of(name)) and not requirement_met(asked, version_of):
            return asked, has
    return "", ""


def are_installed(dists: Mapping[str, str], version_of: Versions) -> bool:
    """Return True if all of these distributions are installed, in these versions."""
    found = ((version_of(dist), specifier) for dist, specifier in dists.items())
    return all(v is not None and (not spec or in_range(v, spec)) for v, spec in found)


def fitting_release(rows: Iterable[Mapping[str, str]], dist: str, version_of: Versions) -> str:
    """Return what installs the release that fits the others here, by rows of which do; or ""."""
    for row in rows:
        others = {name: specifier for name, specifier in row.items() if name != dist}
        if row.keys() - others and others and are_installed(others, version_of):
            return "" if are_installed(row, version_of) else f"pip install '{dist}{row[dist]}'"
    return ""


def required_name(requirement: str) -> str:
    """Return the name of the distribution that a requirement asks for."""
    text = requirement.strip()
    ends = (at for at, sign in enumerate(text) if not (sign.isalnum() or sign in "-_."))
    return text[: next(ends, len(text))]


def clauses(requirement: str) -> int:
    """Return how narrow a requirement is: its number of version clauses, ``==`` counting most."""
    wanted = requirement.strip()[len(required_name(requirement)) :].partition(";")[0]
    return sum(100 if "==" in part else 1 for part in wanted.split(",") if part.strip())


def _part_of_packaging(name: str) -> ModuleType:
    """Return a module of ``packaging``; an ImportError of ours, whatever a broken one raises."""
    try:
        return __import__(f"packaging.{name}", fromlist=("__name__",))  # the part, not the whole
    except program_errors(Exception) as error:
        why = f"packaging cannot be imported: {type(error).__name__}: {error}"
    raise ImportError(why, name="packaging")


# --- The packages that libraries belong to --------------------------------------------------------


class Packages:
    """The folders that packages lie in, as they are now."""

    def __init__(self) -> None:
        # The innermost first: a virtual environment often lies in the working folder.
        self._prefixes = {_inside(sys.prefix), _inside(sys.base_prefix)}  # these are no packages'
        self._entries = [*self._prefixes, *(_inside(e) for e in sys.path if isinstance(e, str))]
        self._entries.sort(key=len, reverse=True)
        # An editable install lies anywhere, and so does a folder that is linked.
        inside = tuple(os.path.join(e, "") for e in sys.path if isinstance(e, str) and e)
        self._others = [
            (name, _inside(place))
            for name, module in list(sys.modules.items())
            if isinstance(name, str) and "." not in name
            for folder in _folders(module)
            if os.path.islink(folder) or not folder.startswith(inside)
            for real in [_real(folder)]
            for place in (folder, real, f"{folder}.libs")
        ]

    def of(self, path: str) -> str:
        """Return the top-level package whose folders a library lies in, empty if none has it.

        ``decord/libdecord.so`` and ``decord.libs/libz.so``, where wheels keep what they bundle,
        both belong to ``decord``. The links of the path are resolved.
        """
        for name, folder in self._others:
            if path.startswith(folder):
                return name
        for entry in self._entries:
            if path.startswith(entry):
                name = path[len(entry) :].partition(os.sep)[0].partition(".")[0]
                return "" if entry in self._prefixes else name
        return ""


def _inside(folder: str) -> str:
    """Return the prefix of the paths of all files in a folder."""
    return os.path.join(_real(folder), "")


def _real(folder: str) -> str:
    try:
        return os.path.realpath(folder)
    except own_errors(OSError, ValueError):  # the working directory is gone, or no path at all
        return folder


def _folders(module: object) -> list[str]:
    folders = peek(module, "__path__")
    # Only lists: the path of a namespace package asks foreign finders when it is read.
    return [path for path in folders if isinstance(path, str)] if isinstance(folders, list) else []
