"""The vocabulary of compiled extensions: would one load, and if not, what is missing."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CAUSES = (
    "truncated",
    "not-elf",
    "wrong-machine",
    "torch-not-imported",
    "torch-flavor",
    "cuda-major",
    "library-missing",
    "symbol-version",
    "python-abi",
    "numpy-abi",
    "older-library",
    "cuda-not-linked",
    "cxx11-abi",
    "other-torch",
    "own-source-missing",
    "unknown",
)


class ExtensionCheck(Record):
    """Whether an extension would load, and why not.

    Args:
        ok: True, False, or None where that cannot be said.
        path: The file.
        cause: Why not: one of ``truncated``, ``not-elf``, ``wrong-machine``,
            ``torch-not-imported``, ``torch-flavor``, ``cuda-major``, ``library-missing``,
            ``symbol-version``, ``python-abi``, ``numpy-abi``, ``older-library``,
            ``cuda-not-linked``, ``cxx11-abi``, ``other-torch``, ``own-source-missing`` and
            ``unknown``; None where `ok` is True.
        message: The same in words; empty where `ok` is True.
        missing_symbols: Pairs of a name that no library defines: mangled, as in the file, and
            readable, as in the source. All of them: where libraries are missing, what these would
            define as well.
        missing_libraries: Libraries that the loader would not find.
        remedy: What to do.
    """

    ok: bool | None
    path: str
    cause: str | None = None
    message: str = ""
    missing_symbols: tuple[tuple[str, str], ...] = ()
    missing_libraries: tuple[str, ...] = ()
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain lists, strings and truth values (JSON-ready)."""
        return super().to_dict()

    def __str__(self) -> str:
        """Return one line: the file, and what is wrong with it."""
        words = {True: "would load", False: "would not load", None: "cannot be judged"}[self.ok]
        details = ". ".join(text.rstrip(".") for text in (self.message, self.remedy) if text)
        return f"{self.path}: {words}{f' ({self.cause}). {details}.' if self.cause else ''}"


class Lack(NamedTuple):
    """Something that an object needs and would not get.

    Args:
        name: A library, a symbol, or a version of symbols.
        needed_by: The file that asks for it.
        library: The file that lacks it, or its name: for a version, and for a symbol of a library
            that `needed_by` names.
    """

    name: str
    needed_by: str
    library: str = ""


class Forecast(NamedTuple):
    """What the dynamic loader would meet, read from the files and from this process.

    Args:
        path: The extension.
        problem: What is wrong with the file itself: ``truncated``, ``not-elf``,
            ``wrong-machine``, or ``unknown`` where it cannot be judged; otherwise empty.
        detail: That problem in a few words.
        needed: The libraries that the extension names.
        libraries: Those of the extension, and of what it brings, that are found nowhere.
        versions: Versions that a library which is there does not have.
        symbols: Symbols that no library defines, of those that are there: where some are missing,
            theirs are among them.
    """

    path: str
    problem: str = ""
    detail: str = ""
    needed: tuple[str, ...] = ()
    libraries: tuple[Lack, ...] = ()
    versions: tuple[Lack, ...] = ()
    symbols: tuple[Lack, ...] = ()

    @property
    def is_fine(self) -> bool:
        """True if nothing keeps the loader from loading it."""
        return not (self.problem or self.libraries or self.versions or self.symbols)


class Surroundings(NamedTuple):
    """What extensions are built for here, read without importing torch.

    Args:
        python: Version of this interpreter, as in ``3.11``.
        is_imported: True if torch is imported, or to be taken for that.
        torch: Version of the torch that is imported or installed; empty if there is none.
        cuda: The CUDA version that it is built for, as in ``12.4``; empty for a build without.
        old_strings: True if it is built with the old C++ ABI; None if that cannot be told.
        torch_libraries: The files in its own folder of libraries.
        homes: Library -> file of an installed package that has it.
        built_against: Folder of the torch that the extension was built against, if it tells.
    """

    python: str
    is_imported: bool = False
    torch: str = ""
    cuda: str = ""
    old_strings: bool | None = None
    torch_libraries: frozenset[str] = frozenset()
    homes: dict[str, str] = {}  # noqa: RUF012  # never changed
    built_against: str = ""
