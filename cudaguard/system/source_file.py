"""Python files and notebooks: their imports, and the comments that silence what is found."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from cudaguard.files import LARGEST, read_bytes
from cudaguard.system.source import Code, Module, bound, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Mapping

    from cudaguard.system.source import Import

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


class Source(NamedTuple):
    """What was read of one file.

    Args:
        codes: Its code; of a notebook, that of its cells.
        ignores: (cell, line) -> ids that a comment on that line silences, or `ALL`.
        problem: Why it could not be read, wholly or in part.
    """

    codes: tuple[Code, ...] = ()
    ignores: Mapping[tuple[int, int], frozenset[str]] = {}  # never changed
    problem: str = ""

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
        return Source(problem=f"cannot be read: {error.strerror or error}")
    if path.endswith(NOTEBOOK):
        return _notebook(data, path)
    try:
        return Source((Code(parsed(data, path), module_of_file(path)),), dict(_ignores(data, 0)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Source(problem=_words(error))


def _notebook(data: bytes, path: str) -> Source:
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
        return Source(problem="is not a notebook of format 4")
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
    names = dict(bound(statement for tree in trees.values() for statement in tree.body))
    module = Module("__main__", "", path)
    codes = (Code(tree, module, number, names) for number, tree in trees.items())
    return Source(tuple(codes), ignores, "; ".join(problems))


def module_of_file(path: str) -> Module:
    """Return a file as the program that is run; in a package, as one of it."""
    parts: list[str] = []
    folder = os.path.dirname(os.path.abspath(path))
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    return Module("__main__", ".".join(parts), path, (folder,))


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
