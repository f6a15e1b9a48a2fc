"""Run a real program without the guard and with it, and show what happens and why."""

from __future__ import annotations

import os
import sys

from cudaguard.model import TYPE_CHECKING
from cudaguard.system.child import WITHOUT_FOLDER, run_command
from cudaguard.tools.common import USAGE, add_verbose, note

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

_PROGRAM = """\
import decord
import cv2
import numpy

picture = numpy.zeros((64, 64, 3), numpy.uint8)
_, png = cv2.imencode(".png", picture)
print("read back:", cv2.imdecode(png, cv2.IMREAD_COLOR) is not None)
"""
# Modules, and the versions that show the fault, as in the extra `demo`.
_PACKAGES = {
    "decord": "decord==0.6.0",
    "cv2": "opencv-python-headless==4.10.0.84",
    "numpy": "numpy>=1.22",
}
_CURED = "read back: True"
_TIME_LIMIT = 300  # seconds for one run of the program


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_verbose(parser, "show what the guard repairs")


def execute(args: Namespace) -> int:
    """Run the demonstration and return its exit status."""
    import importlib.util
    import platform
    import shlex

    system, machine = platform.system(), platform.machine()
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    obstacle = command = ""
    if (system, machine) != ("Linux", "x86_64"):
        obstacle = f"decord 0.6.0 exists for x86-64 Linux only, and this is {system} {machine}."
    elif missing:
        obstacle = f"not installed: {', '.join(missing)}"
        command = shlex.join([sys.executable, "-m", "pip", "install", *_PACKAGES.values()])
    if obstacle:
        note("demo", f"The demonstration cannot run here: {obstacle}", command)
        return USAGE
    print("The program:\n")
    print("".join(f"    {line}".rstrip() + "\n" for line in _PROGRAM.splitlines()))
    is_broken = _CURED not in _show("1. Without the guard: python program.py")
    run = ["run", *([] if args.verbose else ["--quiet"]), "-c"]
    is_cured = _CURED in _show("2. With the guard: cudaguard run program.py", run)
    if not is_broken:
        print("This Python does not show the fault: its zlib is loaded before decord's.")
    elif is_cured:
        print("decord exposes its old zlib to every library loaded after it (cudaguard explain")
        print("CG001). In a program of yours: import cudaguard; cudaguard.install()")
    else:
        print("The guard did NOT prevent the fault.")
    return 0 if is_broken and is_cured else 1


def _show(title: str, guard: Sequence[str] = ()) -> str:
    """Run the program, print what it printed, and return that."""
    program = WITHOUT_FOLDER + _PROGRAM
    code = f"from cudaguard.tools.main import main\nsys.exit(main({[*guard, program]!r}))"
    # Each run has the guard state of its title, whatever ours is.
    environment = {**os.environ, "CUDAGUARD": "" if guard else "off"}
    print(title)
    command = [sys.executable, "-c", WITHOUT_FOLDER + code if guard else program]
    ended = run_command(command, environment, _TIME_LIMIT)
    said = f"{ended.errors}{ended.output}" if ended.status is not None else "it does not end"
    print("".join(f"    {line}\n" for line in said.splitlines()))
    return said
