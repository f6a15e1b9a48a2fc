"""Has every function of the guard fail once, and looks how the guarded program ends.

The guard is copied, and each function of the copy asks first whether it is to raise: inside the
`try` that it begins with, if it does. So the error comes from the guard's own lines, with no frame
of anybody else. A program is fine if it prints and returns what it does unguarded, or guarded
without a fault, and hears one report at most.
"""

from __future__ import annotations

import ast
import concurrent.futures
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from ..processes import Child

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT = 60  # seconds for one program; it takes half a second
ERRORS = ("RuntimeError", "MemoryError", "OSError")
_FOLDER = Path(__file__).parent / "faults"
PROGRAMS = {name: (_FOLDER / f"{name}.txt").read_text() for name in ("decord", "fork")}
ASKS = "for _fault in __faults__.get({key!r}, ()): raise _fault('injected')\n"
# In front of each program. The variables have names that the guard does not know: where it is
# installed, the line in its .pth file has been run by then.
BEGINS = (_FOLDER / "begin.txt").read_text()


class Fault(NamedTuple):
    """One function that fails in one program."""

    program: str
    function: str  # its file and its qualified name
    error: str


class End(NamedTuple):
    """How a program ended."""

    status: int | str
    out: str
    err: str

    @property
    def reports(self) -> int:
        """How often the guard has said that something of its own failed."""
        return self.err.count("[CG807]") + self.err.count("\ncudaguard: ")


def functions(tree: ast.AST, name: str = "") -> list[tuple[str, ast.stmt]]:
    """Return each function's qualified name and its first statement behind the docstring."""
    found = []
    for node in ast.iter_child_nodes(tree):
        inner = name
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = f"{name}.{node.name}".lstrip(".")
            if not isinstance(node, ast.ClassDef):
                body = node.body[ast.get_docstring(node) is not None :]
                while body and isinstance(body[0], ast.Try):
                    body = body[0].body
                if body and body[0].lineno > node.lineno:
                    found.append((inner, body[0]))
        found += functions(node, inner)
    return found


def instrument(source: str, file: str) -> str:
    """Return the source of a module whose functions ask whether they are to fail."""
    lines = source.splitlines(keepends=True)
    for name, first in functions(ast.parse(source)):
        decorators = [one.lineno for one in getattr(first, "decorator_list", ())]
        at = min([first.lineno, *decorators]) - 1
        asks = ASKS.format(key=f"{file}:{name}")
        lines[at] = " " * first.col_offset + asks + lines[at]
    return "".join(lines)


class Laboratory:
    """A copy of the guard whose functions fail on demand, and programs that are run with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for file in ROOT.glob("cudaguard/**/*.py"):
            copy = folder / "guard" / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = file.read_text(encoding="utf-8")
            name = file.relative_to(ROOT).as_posix()
            copy.write_text(instrument(text, name), encoding="utf-8")
        shutil.copy(ROOT / "_cudaguard_boot.py", folder / "guard")
        for name, text in PROGRAMS.items():
            code = BEGINS + text
            (folder / f"program_{name}.py").write_text(code, encoding="utf-8")
        self.fine: dict[str, set[tuple[int | str, str]]] = {}

    def run(self, program: str, mode: str = "fix", **variables: str) -> End:
        """Run a program in a mode of the guard."""
        env = {**variables, "GUARD_MODE": mode, "PYTHONPATH": str(self.folder / "guard")}
        command = (sys.executable, f"program_{program}.py")
        try:
            done = Child(self.folder).command(*command, env=env, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return End("hangs", "", "")
        return End(done.returncode, done.stdout, done.stderr)

    def faults(self, *programs: str) -> list[Fault]:
        """Return all that can fail in these programs; runs each without a fault first."""
        found = []
        for program in programs:
            reached = self.folder / f"{program}.reached"
            ends = [
                self.run(program, mode="off"),
                self.run(program, REACHED=str(reached)),
                self.run(program),
            ]
            self.fine[program] = {(end.status, end.out) for end in ends}
            for function in sorted(set(reached.read_text().splitlines())):
                found += [Fault(program, function, error) for error in ERRORS]
        return found

    def fails(self, fault: Fault) -> str:
        """Run a program with a fault; return what is wrong with its end, empty if nothing is."""
        end = self.run(fault.program, FAULT=f"{fault.error} {fault.function}")
        if end.status == "hangs":
            return "hangs"
        if (end.status, end.out) not in self.fine[fault.program]:
            said = end.err.strip().splitlines()[-1:] or [""]
            return f"ends with {end.status}: {said[0][:200]}"
        return f"{end.reports} reports" if end.reports > 1 else ""

    def try_each(self, faults: list[Fault], *, seconds: float) -> dict[Fault, str]:
        """Run all faults, two programs at a time; those left when the time is over are not in."""
        ends = time.monotonic() + seconds

        def one(fault: Fault) -> str | None:
            return self.fails(fault) if time.monotonic() < ends else None

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            tried = dict(zip(faults, pool.map(one, faults)))
        return {fault: said for fault, said in tried.items() if said is not None}


def sample(faults: list[Fault], number: int, seed: int) -> list[Fault]:
    """Return some of the faults, the same for the same seed."""
    return random.Random(seed).sample(faults, min(number, len(faults)))
