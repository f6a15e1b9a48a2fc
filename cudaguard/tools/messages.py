"""What `cudaguard` says of its commands as a whole."""

from __future__ import annotations

SUMMARY = "Run-time import-order guard for Python programs that mix CUDA libraries."
EXAMPLES = """\
examples:
  cudaguard doctor                    what would break in this environment?
  cudaguard run train.py --epochs 3   the program, guarded; if it dies, why
  cudaguard bisect train.py           which imports make it fail?
  cudaguard explain CG001             what does that id, or a message, mean?

`cudaguard COMMAND --help` has more. Exit status: 0 nothing was found, 1 a fault was found, 2 wrong
usage, 3 a check could not be made; `cudaguard run` ends as the program does.
"""
COMMANDS = {
    "run": "run a program under the guard from its first line",
    "doctor": "report what would break here, before anything is run",
    "trace": "show when a program maps which native library, and who initializes CUDA",
    "bisect": "find the imports, and their order, with which a program fails",
    "check-extension": "report whether compiled extensions would load, and have code for a GPU",
    "lint": "report import statements whose order a rule forbids",
    "rules": "list the rules, show one, or check a file with your own",
    "explain": "explain an error message or an id, and what to do",
    "demo": "show a real fault and its cure side by side",
}
# What one wants, and the call for it; in the order in which a user comes to need them.
_WANTS = (
    ("see what would break here, before you run anything", "cudaguard doctor"),
    ("run a program with repairs, and learn why it dies", "cudaguard run train.py"),
    ("understand an error message or an id", "cudaguard explain 'undefined symbol: ...'"),
    ("find the imports that make a program fail", "cudaguard bisect train.py"),
    ("see which import maps which library", "cudaguard trace train.py"),
    ("check a compiled extension without loading it", "cudaguard check-extension my_ext.so"),
    ("check the order of import statements in CI", "cudaguard lint ."),
    ("see the rules, or check your own", "cudaguard rules list"),
    ("see a fault and its cure", "cudaguard demo"),
)


def overview() -> str:
    """Return the commands by what one wants, for a call without any."""
    width = max(len(want) for want, _ in _WANTS)
    lines = (f"  {want:<{width}}  {call}" for want, call in _WANTS)
    return "\n".join(("What do you want to do?", "", *lines, "", "Options: cudaguard --help"))


def no_command(word: str, right: str) -> str:
    """Return that there is no command of that name, and which there are if none is near."""
    expected = "" if right else f"; expected one of {', '.join(COMMANDS)}"
    return f"there is no command {word!r}{expected}"
