"""The commands of the command line beside what people use today."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path

from benchmarks.harness import Group, Row, Subject

HERE = Path(__file__).resolve().parent
OURS = (sys.executable, "-m", "cudaguard")
PYTHON = (sys.executable,)
MESSAGE = "ImportError: my_ext.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"
# Label, our command, the peer's label and command, what the peer requires, the budget and where it
# comes from.
PAIRS = (
    ("run", ("run", "-c", "pass"), "python -c pass", (*PYTHON, "-c", "pass"), "", 3.0,
     "0.15/0.05 s"),
    ("trace", ("trace", "-c", "import json"), "-X importtime",
     (*PYTHON, "-X", "importtime", "-c", "import json"), "", math.inf, ""),
    ("doctor", ("doctor",), "pip check", (*PYTHON, "-m", "pip", "check"), "", math.inf, ""),
    ("doctor --bundle", ("doctor", "--bundle", os.devnull), "collect_env",
     (*PYTHON, "-m", "torch.utils.collect_env"), "torch", math.inf, ""),
    ("rules list", ("rules", "list"), "pip list", (*PYTHON, "-m", "pip", "list"), "", math.inf, ""),
    ("explain", ("explain", MESSAGE), "python -c pass again", (*PYTHON, "-c", "pass"), "",
     math.inf, ""),
    ("lint", ("lint", str(HERE.parent / "cudaguard")), "ast.parse of each file",
     (*PYTHON, str(HERE / "commands.py"), "parsing", str(HERE.parent / "cudaguard")), "",
     math.inf, ""),
)  # fmt: skip


def commands() -> Group:
    """Return the group of whole commands; times on the wall are those of a machine that rests."""
    pairs = list(PAIRS)
    ldd = shutil.which("ldd")
    file = _extension()
    if ldd and file:
        pairs.append(
            ("check-extension", ("check-extension", file), "ldd -r", (ldd, "-r", file), "",
             math.inf, "")
        )  # fmt: skip
    subjects, rows = [], []
    for label, words, peer, peers_words, requires, limit, reason in pairs:
        subjects.append(Subject(label, ("running", *OURS, *words), requires, script="commands.py"))
        subjects.append(Subject(peer, ("running", *peers_words), requires, script="commands.py"))
        rows.append(Row(f"{label}, CPU", label, peer))
        rows.append(Row(f"{label}, wall", f"{label}:wall", f"{peer}:wall", limit, reason, peer))
    return Group("Commands, with the start of their Pythons", tuple(subjects), tuple(rows))


def _extension() -> str:
    """Return the file of an extension module that Python has."""
    import _ctypes

    return str(getattr(_ctypes, "__file__", None) or "")
