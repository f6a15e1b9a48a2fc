"""Runs the program of a rule in a fresh environment, without and with the guard."""

from __future__ import annotations

import os
import sys

from cudaguard.model import Record
from cudaguard.system import child
from cudaguard.tools.common import CANNOT_SAY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.model import Rule
    from cudaguard.system.child import Ended
    from cudaguard.tools.common import Progress
    from cudaguard.tools.rules.reproducers import Reproducer

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INSTALL_LIMIT = 3600.0  # seconds; gigabytes may have to come over a slow line
LAST_LINES = 3
# What of our environment would reach into the fresh one.
FOREIGN = (
    *("CUDAGUARD", "PYTHON", "VIRTUAL_ENV", "LD_PRELOAD"),
    *("PIP_PREFIX", "PIP_PYTHON", "PIP_QUIET", "PIP_ROOT", "PIP_TARGET", "PIP_USER"),
)
# Not `pip list`: a configuration of pip can silence it.
VERSIONS = """
import json
from importlib import metadata
print(json.dumps([(d.metadata["Name"], d.version) for d in metadata.distributions()]))
"""


class CannotRunError(Exception):
    """The program of the rule cannot be run: the message says why."""


class Half(Record):
    """One of the two runs.

    Args:
        works: True if all went well.
        ending: How it ended, in words.
        output: The last lines that it wrote.
        seconds: How long it took.
    """

    __slots__ = ("ending", "output", "seconds", "works")
    works: bool
    ending: str
    output: tuple[str, ...]
    seconds: float

    def __init__(self, works: bool, ending: str, output: Sequence[str], seconds: float) -> None:
        self._fill(works=works, ending=ending, output=tuple(output), seconds=seconds)


class Reproduction:
    """A fresh environment in a folder, and what becomes of the program in it.

    Args:
        rule: The rule.
        program: Its program.
        folder: An empty folder, for the caller to remove.
        progress: Where what goes on is told.
    """

    def __init__(self, rule: Rule, program: Reproducer, folder: str, progress: Progress) -> None:
        self._rule, self._program = rule, program
        self._folder, self._progress = folder, progress
        self._python = os.path.join(folder, "venv", "bin", "python")
        self._guard = os.path.join(folder, "guard")  # has this package, and nothing else of ours

    def document(self, *, newest: bool, limit: float) -> dict[str, Any]:
        """Make the environment, run both halves, and return what came of it.

        Args:
            newest: The newest releases, rather than those that the rule was seen with.
            limit: Seconds for one half.

        Raises:
            CannotRunError: It could not be done.
        """
        wanted = self._program.newest if newest else self._program.pins
        self._make_environment(wanted)
        versions = self._versions(wanted)
        unguarded = self._half("without the guard", guarded=False, limit=limit)
        guarded = self._half("with the guard", guarded=True, limit=limit)
        self._progress.clear()
        cured = "needed" if guarded.works else "not-cured"
        return {
            "verdict": "not-needed" if unguarded.works else cured,
            "versions": versions,
            "unguarded": unguarded.to_dict(),
            "guarded": guarded.to_dict(),
        }

    def _make_environment(self, wanted: Sequence[str]) -> None:
        self._progress.running("making an environment")
        venv = [sys.executable, "-m", "venv", os.path.join(self._folder, "venv")]
        self._call(venv, "an environment cannot be made with `python -m venv`")
        try:
            os.mkdir(self._guard)
            os.symlink(PACKAGE, os.path.join(self._guard, "cudaguard"))
        except OSError as error:
            raise CannotRunError(f"this package cannot be linked to: {error}") from None
        names = ", ".join(wanted)
        self._progress.running(f"installing {names}")
        what = f"pip cannot install {names}; it needs a package index, by network as a rule"
        self._call(self._pip("install", "--quiet", *self._program.more, *wanted), what)
        self._call(self._pip("install", "--quiet", *_our_requirements()), what)

    def _pip(self, *task: str) -> list[str]:
        return [self._python, "-m", "pip", "--disable-pip-version-check", "--no-input", *task]

    def _versions(self, wanted: Sequence[str]) -> dict[str, str]:
        import json
        from re import split, sub

        command = [self._python, "-c", VERSIONS]
        listed = json.loads(self._call(command, "what was installed cannot be read").output)
        asked = {split("[=<>!~; ]", item)[0] for item in wanted}
        found = {sub("[-_.]+", "-", name).lower(): version for name, version in listed}
        return {name: found[name] for name in sorted(asked & set(found))}

    def _call(self, command: Sequence[str], what: str) -> Ended:
        try:
            ended = child.run(command, self._environment(), INSTALL_LIMIT)
        except OSError as error:
            raise CannotRunError(f"{what}: {error}") from None
        if ended.status != 0:
            lines = (ended.errors or ended.output).splitlines()
            told = [line for line in lines if line.startswith("ERROR")] or lines
            raise CannotRunError(f"{what}: {_ending(ended)}: {' '.join(told[-LAST_LINES:])}")
        return ended

    def _environment(self, **more: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
        return {**kept, "TMPDIR": self._folder, **more}  # what pip leaves there goes as well

    def _half(self, name: str, *, guarded: bool, limit: float) -> Half:
        self._progress.running(f"running {os.path.basename(self._program.script)} {name}")
        place = os.path.join(self._folder, "guarded" if guarded else "unguarded")
        os.mkdir(place)
        launcher = ["-m", "cudaguard", "run"] if guarded and not self._program.is_late else []
        script = os.path.join(PACKAGE, self._program.script)
        environment = self._environment(PYTHONPATH=self._guard)
        if guarded:
            off = "".join(f",-{rule}" for rule in self._program.only)
            environment["CUDAGUARD_RULES"] = f"+{self._rule.id}{off}"
        else:
            environment["CUDAGUARD"] = "off"
        command = [self._python, *launcher, script]
        try:
            ended = child.run(command, environment, limit, folder=place)
        except OSError as error:
            raise CannotRunError(f"the program cannot be started: {error}") from None
        lines = [*ended.output.splitlines(), *ended.errors.splitlines()]
        missing = [line for line in lines if line.startswith("ModuleNotFoundError")]
        if ended.status == CANNOT_SAY or missing:
            why = " ".join((missing or lines)[-LAST_LINES:])
            raise CannotRunError(f"the program cannot tell: {why}")
        if ended.status == 0:  # libraries chatter on stderr
            lines = ended.output.splitlines()
        return Half(ended.status == 0, _ending(ended), lines[-LAST_LINES:], ended.seconds)


def _ending(ended: Ended) -> str:
    if ended.status is None:
        return f"did not end within {ended.seconds:.0f} s"
    if ended.status < 0:
        from signal import strsignal

        return f"was ended by signal {-ended.status} ({strsignal(-ended.status)})"
    return f"ended with status {ended.status}"


def _our_requirements() -> list[str]:
    """Return what the guard itself needs."""
    try:
        from importlib import metadata

        wanted = metadata.requires("cudaguard") or ()
    except ImportError as error:  # also that there is no metadata
        raise CannotRunError(f"it is not known what cudaguard itself needs: {error}") from None
    return [requirement for requirement in wanted if "extra ==" not in requirement]
