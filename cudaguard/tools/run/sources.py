"""The sources of a program that has died: the lines of its frames."""

from __future__ import annotations

import os

from cudaguard.files import LARGEST, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.tools.run.faults import FaultDump, Frames
    from cudaguard.tools.run.program import Program


class Sources:
    """Reads the lines that frames are at, each file once.

    Args:
        program: The program.
        outermost: The file of its outermost frame, which is that of ``-m MODULE``: the module is
            not imported to find it.
    """

    def __init__(self, program: Program, outermost: str) -> None:
        self._program = program
        is_module = program.words[:1] == ("-m",)
        self.script = program.script or (outermost if is_module else "")
        self._lines: dict[str, list[str]] = {}

    def program(self) -> str:
        """Return the text of the program, empty if it is in no file or that cannot be read."""
        try:
            return read_bytes(self.script, LARGEST).decode()
        except (OSError, ValueError):
            return ""

    def frames(self, frames: Frames) -> list[dict[str, Any]]:
        """Return frames as the report has them."""
        return [self._frame(*frame) for frame in frames]

    def threads(self, fault: FaultDump) -> list[dict[str, Any]]:
        """Return the threads beside the one concerned as the report has them."""
        return [{"name": other.name, "stack": self.frames(other.frames)} for other in fault.others]

    def _frame(self, file: str, line: int, function: str) -> dict[str, Any]:
        is_program = self._is_program(file)
        lines = self._lines_of(file)
        if not lines and is_program and not self.script:
            lines = self._program.words[1].splitlines()
        return {
            "file": file,
            "line": line,
            "function": function,
            "source": "".join(lines[line - 1 : line]).strip() if line > 0 else "",
            "is_program": is_program,
        }

    def _is_program(self, file: str) -> bool:
        if not self.script:
            return file == "<string>" and self._program.words[:1] == ("-c",)
        return os.path.abspath(file) == os.path.abspath(self.script)

    def _lines_of(self, file: str) -> list[str]:
        """Return the lines of a source, none if it cannot be read."""
        if file not in self._lines:
            try:
                text = read_bytes(file, LARGEST).decode("utf-8", "replace")
            except (OSError, ValueError):
                text = ""
            self._lines[file] = text.splitlines()
        return self._lines[file]
