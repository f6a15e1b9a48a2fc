"""What `cudaguard bisect` runs: the program, its command line, environment and import path."""

from __future__ import annotations

import os
import sys

from cudaguard.system.origins import STANDARD, origin_of
from cudaguard.system.redact import redacted_arguments
from cudaguard.tools.bisect.messages import SHELL, name_of
from cudaguard.tools.bisect.trials import (
    IMPORTS_VARIABLE,
    JOURNAL_VARIABLE,
    RUNNER,
    STACKS_VARIABLE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace


class TestedProgram:
    """A program, a list of imports, or a command that makes them.

    Args:
        args: The command line.

    Attributes:
        program: What is run, as a document has it; empty for imports alone.
        shown: What it is called in messages.
        words: The script or module and its arguments; empty if there is none.
        is_module: True if the program is named as with ``python -m``.
    """

    def __init__(self, args: Namespace) -> None:
        self._args = args
        self.is_module = args.program[:1] == ["-m"]
        self.words: list[str] = args.program[1:] if self.is_module else list(args.program)
        if self.words and not self.is_module:
            self.words[0] = os.path.abspath(self.words[0])
        command = [*SHELL, args.cmd] if args.cmd is not None else args.program
        self.program = redacted_arguments(command)
        self.shown = name_of(self.program)

    def environment(self, mode: str | None) -> dict[str, str]:
        """Return the environment of the children.

        Args:
            mode: The mode of the guard in it; None for none.
        """
        ours = (IMPORTS_VARIABLE, JOURNAL_VARIABLE, STACKS_VARIABLE)
        environ = {name: value for name, value in os.environ.items() if name not in ours}
        environ["PYTHONFAULTHANDLER"] = "1"  # a crash then says where
        if mode is None:
            return {**environ, "CUDAGUARD": "off"}
        from cudaguard.tools.run.command import guarded_environment

        environ.pop("CUDAGUARD", None)
        return guarded_environment(mode, environ)

    def command(self, *, with_program: bool) -> list[str]:
        """Return the command line of a child: the program, or the imports alone."""
        if self._args.cmd is not None:
            return [*SHELL, self._args.cmd]
        kind = "module" if self.is_module else "script"
        what = [kind, *self.words] if with_program else ["imports", self.first_folder()]
        return [sys.executable, RUNNER, *what]

    def named_imports(self) -> list[str]:
        """Return what the script's own import statements name, besides the standard library."""
        from cudaguard.system.source import imports_of_file

        if self.is_module:
            return []
        names = imports_of_file(self.words[0])
        return [name for name in names if origin_of(name, self.path()) != STANDARD]

    def path(self) -> list[str]:
        """Return the folders in which the program finds its modules."""
        # In front of ours is the current folder, or that of the command itself.
        rest = sys.path if getattr(sys.flags, "safe_path", False) else sys.path[1:]
        is_safe = os.environ.get("PYTHONSAFEPATH") and hasattr(sys.flags, "safe_path")
        return [*rest] if is_safe else [self.first_folder(), *rest]

    def first_folder(self) -> str:
        """Return what Python puts in front of the program's path."""
        if self.words and not self.is_module:
            return os.path.dirname(os.path.realpath(self.words[0]))
        return os.getcwd()
