"""Run a real program twice, without and with the guard, and show what happens and why.

The program imports decord and then lets OpenCV write and read a PNG. Ends with status 0 only if
the fault occurred without the guard and did not occur with it.
"""

from __future__ import annotations

import os
import sys

from cudaguard.system.lending import WITHOUT_FOLDER
from cudaguard.tools.common import USAGE, note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_demo", "decord_then_opencv.py")
# Modules, and the releases that show the fault, as in the extra `demo`.
PACKAGES = {
    "decord": "decord==0.6.0",
    "cv2": "opencv-python-headless==4.10.0.84",
    "numpy": "numpy>=1.22",
}
# Not by -m, which would take what lies in the working directory for a module of Python's.
_GUARDED = f"{WITHOUT_FOLDER}from cudaguard.tools.main import main\nsys.exit(main(sys.argv[1:]))"
_INDENT = 4
TIME_LIMIT = 300  # seconds for one run of the program


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments: there are none."""
    parser.epilog = (
        "Example: cudaguard demo. Exit status: 0 as told above, 1 otherwise, 2 it cannot run here."
    )


def execute(args: Namespace) -> int:
    """Run the demonstration and return its exit status."""
    obstacle, command = _obstacle()
    if obstacle:
        note("demo", f"The demonstration cannot run here: {obstacle}", command)
        return USAGE
    from cudaguard.tools.known import RULES
    from cudaguard.tools.layout import Page

    rule = next(rule for rule in RULES if rule.id == "CG001")
    name = os.path.basename(PROGRAM)
    print("The program, which knows nothing of cudaguard:\n")
    with open(PROGRAM, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line in lines[lines.index("import sys") :]:
        print(f"    {line.partition('  #')[0]}".rstrip())
    broken = _show(f"1. Without the guard: python {name}", guarded=False)
    cured = _show(f"2. With the guard: cudaguard run {name}", guarded=True) == 0
    is_shown = broken != 0 and cured
    page = Page(sys.stdout)
    page.add("Why")
    page.add(rule.why, _INDENT, hanging=0)
    page.add(f"Reported in {rule.links[0]} and others; this is rule {rule.id}.", _INDENT, hanging=0)
    page.blank()
    page.add(_verdict(broken, cured=cured), style="green" if is_shown else "red")
    if is_shown:
        page.add(
            "In a program of yours: `import cudaguard; cudaguard.install()` on its first line."
        )
    print(f"\n{page}")
    return 0 if is_shown else 1


def _verdict(broken: int, *, cured: bool) -> str:
    if broken == 0 and _has_zlib_first():
        return (
            "Result: the fault does not occur in this Python. zlib is in its global symbol scope "
            "before decord is imported, probably because the executable is linked against zlib."
        )
    if broken == 0:
        return "Result: the fault did not occur without the guard, so there was nothing to show."
    if not cured:
        return "Result: the guard did NOT prevent the fault."
    return "Result: the fault occurred without the guard and did not occur with it."


def _has_zlib_first() -> bool:
    """Return True if zlib's symbols resolve without any import, as in Debian's Python 3.14."""
    import ctypes

    return hasattr(ctypes.CDLL(None), "inflate")


def _obstacle() -> tuple[str, str]:
    """Return why the demonstration cannot run here, and what helps; empty if it can."""
    import importlib.util
    import platform

    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        return f"decord 0.6.0 exists for x86-64 Linux only, and this is {system} {machine}.", ""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        import shlex

        wanted = [sys.executable, "-m", "pip", "install", *PACKAGES.values()]
        return f"not installed: {', '.join(missing)}", shlex.join(wanted)
    return "", ""


def _show(title: str, *, guarded: bool) -> int:
    """Run the program, print what it printed, and return its exit status."""
    from cudaguard.system.child import run_command

    start = [sys.executable, *(["-c", _GUARDED, "run"] if guarded else []), PROGRAM]
    # Each run must have the guard state of its title, whatever ours is.
    environment = {key: value for key, value in os.environ.items() if key != "CUDAGUARD"}
    if not guarded:
        environment["CUDAGUARD"] = "off"
    print(f"\n{title}")
    ended = run_command(start, environment, TIME_LIMIT)
    if ended.status is None:
        print(f"    did not end within {TIME_LIMIT} s")
        return 124
    for line in f"{ended.errors}{ended.output}".splitlines():
        print(f"    {line}")
    print(f"    exit status {ended.status}")
    return ended.status
