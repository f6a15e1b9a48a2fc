"""Python files and notebooks: their imports, and the comments that silence what is found."""

from __future__ import annotations

import os
import re

from cudaguard.files import LARGEST, read_bytes
from cudaguard.model import Record
from cudaguard.system.source import Import, imports_in, loaders_in, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator, Mapping, Sequence

NOTEBOOK = ".ipynb"
IGNORE = "cudaguard: ignore"
ALL = "*"
# Cell magics that run the rest of their cell as Python.
PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun")
# A line of Python may begin with the operator ``%``, apart from what follows.
_MAGIC = re.compile(r"%%?[A-Za-z_]|[!?]")
# As in ``files = !ls`` and ``took = %timeit -o f()``.
_ASSIGNED_MAGIC = re.compile(r"([\w.,\s]+=\s*)(?:!|%[A-Za-z_])")
SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules", "site-packages"))
ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # in their folders


class Source(Record):
    """What was read of one file.

    Args:
        path: The file.
        imports: In the order in which they are executed.
        ignores: (cell, line) -> ids that a comment on that line silences, or `ALL`.
        problem: Why it could not be read, wholly or in part.
        lines: Cell (0 for a file) -> its lines, as they are written, with their ends.
    """

    __slots__ = ("ignores", "imports", "lines", "path", "problem")
    path: str
    imports: tuple[Import, ...]
    ignores: Mapping[tuple[int, int], frozenset[str]]
    problem: str
    lines: Mapping[int, Sequence[str]]

    def __init__(
        self,
        path: str,
        imports: Iterable[Import] = (),
        ignores: Mapping[tuple[int, int], frozenset[str]] | None = None,
        problem: str = "",
        lines: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self._fill(
            path=path, imports=tuple(imports), ignores=ignores or {}, problem=problem,
            lines=lines or {},
        )  # fmt: skip

    def is_silenced(self, id: str, *places: Import) -> bool:
        """Return True if a comment on one of these statements silences a rule."""
        for place in places:
            for line in range(place.line, place.last_line + 1):
                if self.ignores.get((place.cell, line), frozenset()) & {id, ALL}:
                    return True
        return False


def read(path: str) -> Source:
    """Read a file; what cannot be read or parsed is told in the result."""
    try:
        data = read_bytes(path, LARGEST)
    except OSError as error:
        return Source(path, problem=f"cannot be read: {error.strerror or error}")
    return source_of(path, data)


def source_of(path: str, data: bytes) -> Source:
    """Return what is in a file that was read; what cannot be parsed is told in the result."""
    if path.endswith(NOTEBOOK):
        return _notebook(path, data)
    try:
        imports = imports_in(parsed(data, path))
        return Source(path, imports, dict(_ignores(data, 0)), lines={0: decoded(data)[0]})
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Source(path, problem=_words(error))


def decoded(data: bytes) -> tuple[list[str], str]:
    """Return the lines of a Python source with their ends, and its encoding.

    Lines end where Python ends them. The encoding of what begins with a mark is ``utf-8-sig``,
    which writes the mark again.

    Raises:
        SyntaxError: The encoding is none that Python knows.
        ValueError: It is not what is written.
    """
    import io
    import tokenize

    encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    return io.StringIO(data.decode(encoding), newline="").readlines(), encoding


def _notebook(path: str, data: bytes) -> Source:
    import json

    try:
        document = json.loads(data)
        cells = [
            (number, "".join(cell["source"]))
            for number, cell in enumerate(document["cells"], 1)
            if cell["cell_type"] == "code"
        ]
        language = document.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Source(path, problem="is not a notebook of format 4")
    trees: dict[int, ast.Module] = {}
    ignores: dict[tuple[int, int], frozenset[str]] = {}
    problems: list[str] = []
    for number, text in cells if language == "python" else ():
        code = _without_magics(text).encode()
        try:
            trees[number] = parsed(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problems.append(f"cell {number}: {_words(error)}")
            continue
        ignores.update(_ignores(code, number))
    loaders = {name for tree in trees.values() for name in loaders_in(tree)}
    imports = [
        found.replace(cell=number)
        for number, tree in trees.items()
        for found in imports_in(tree, loaders)
    ]
    lines = {number: text.splitlines() for number, text in cells}
    return Source(path, imports, ignores, "; ".join(problems), lines)


def _without_magics(text: str) -> str:
    """Return the Python of a cell, all lines in their places."""
    lines = text.splitlines()
    if lines and lines[0].startswith("%%") and not lines[0].startswith(PYTHON_MAGICS):
        return ""  # another language, or a file
    goes_on = False
    for number, line in enumerate(lines):
        begin = line.lstrip()
        assigned = _ASSIGNED_MAGIC.match(line)
        if goes_on:
            lines[number] = ""
        elif _MAGIC.match(begin) or (line.rstrip().endswith("?") and "#" not in line):
            lines[number] = f"{line[: len(line) - len(begin)]}pass"
        elif assigned:
            lines[number] = f"{assigned[1]}None"
        goes_on = lines[number] != line and line.endswith("\\")
    return "\n".join(lines)


def _words(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)
    return f"cannot be parsed: {type(error).__name__}: {error}"


def _ignores(data: bytes, cell: int) -> Iterator[tuple[tuple[int, int], frozenset[str]]]:
    """Yield ((cell, line), ids) for the comments that silence something."""
    if IGNORE.encode() not in data:
        return
    import io
    import tokenize

    for token in tokenize.tokenize(io.BytesIO(data).readline):
        if token.type == tokenize.COMMENT and IGNORE in token.string:
            rest = token.string.partition(IGNORE)[2].lstrip()
            ids = rest[1:].partition("]")[0] if rest.startswith("[") else ALL
            named = frozenset(id.strip() for id in ids.split(",") if id.strip())
            yield (cell, token.start[0]), named


def files_below(path: str) -> list[str]:
    """Return the file itself, or the Python files and notebooks of a folder, sorted.

    Hidden folders, environments and installed packages are left out.
    """
    if not os.path.isdir(path):
        return [path]
    found: list[str] = []

    def closed(error: OSError) -> None:
        found.append(error.filename)  # to read it as a file tells why

    for root, folders, names in os.walk(path, onerror=closed):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in SKIPPED_FOLDERS
            and not any(os.path.exists(os.path.join(root, name, sign)) for sign in ENVIRONMENTS)
        ]
        files = (os.path.join(root, n) for n in names if n.endswith((".py", NOTEBOOK)))
        # A pipe would be read for ever; a link into nowhere is how Emacs marks what is edited.
        found += [file for file in files if os.path.isfile(file)]
    return sorted(found)
