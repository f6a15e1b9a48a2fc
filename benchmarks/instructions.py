"""Counted instructions of guarded programs beside plain ones, which no other work disturbs.

``python -m benchmarks --instructions --compare benchmarks/ratios.json`` counts again, and ends with
status 1 where a ratio has risen by more than `TOLERANCE`; ``--save FILE`` writes such a file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import harness, subjects
from benchmarks.child import generated_names

if TYPE_CHECKING:
    from collections.abc import Mapping

TOLERANCE = 0.01
_COUNTED = re.compile(r"Collected : (\d+)")
# What is measured, with the packages that it needs.
PROGRAMS = {
    "start": ("pass", ""),
    "ctypes": ("import ctypes", ""),
    "numpy": ("import numpy", "numpy"),
    "numpy and cv2": ("import numpy, cv2", "numpy cv2"),
    "scipy.stats": ("import scipy.stats", "scipy"),
    "torch": ("import torch", "torch"),
}
MANY = (1, 10, 100)
_MEMORY = "; print(open('/proc/self/statm').read().split()[1])"  # resident pages
_INTERPRETERS = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"
_IN_EACH = "[all.run_string(all.create(), 'import site; site.main()') for _ in range({})]"
_IN_THREADS = """
import threading
threads = [threading.Thread(target=__import__, args=(f"tiny{{n}}",)) for n in range({})]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def measured(folder: Path, only: str = "") -> dict[str, float]:
    """Return ratios of instructions, and of resident memory at the end, by what they are of.

    Args:
        folder: Where files are written.
        only: One of `PROGRAMS`; empty for all there is.
    """
    found = {}
    for name, (code, needs) in PROGRAMS.items():
        if only in ("", name) and all(map(util.find_spec, needs.split())):
            found[name] = _ratio(code)
            found[f"{name}: memory"] = _pages(code, "fix") / _pages(code, "")
    if not only and shutil.which("cc"):
        subjects.build_libraries(folder / "native", max(MANY))
        for many in MANY:
            names = ", ".join(generated_names(many))
            path = {"PYTHONPATH": str(folder / "native")}
            found[f"{many} extensions"] = _ratio(f"import {names}", path)
    for many in () if only else MANY:
        code = f"import {_INTERPRETERS} as all; {_IN_EACH.format(many)}"
        pages = _pages(code, "fix") / _pages(code, "")
        found[f"{many} sub-interpreters: memory"] = pages
        place = folder / str(many)
        for number in range(many):
            info = place / f"dist{number}-1.dist-info"
            info.mkdir(parents=True)
            (info / "entry_points.txt").write_text("[console_scripts]\na = b:c\n")
            (place / f"tiny{number}.py").write_text("x = 1\n")
        path = {"PYTHONPATH": str(place)}
        found[f"start, {many} distributions"] = _ratio("pass", path)
        names = ", ".join(f"tiny{number}" for number in range(many))
        found[f"{many} modules"] = _ratio(f"import {names}", path)
        found[f"{many} threads"] = _ratio(f"exec({_IN_THREADS.format(many)!r})", path)
        rules = (
            f'[[rules]]\nid = "X{n}"\nwatch = ["watched{n}"]\nwhy = "a test"\n' for n in range(many)
        )
        (place / "rules.toml").write_text("\n".join(rules))
        file = {"CUDAGUARD_CONFIG": str(place / "rules.toml")}
        found[f"start, {many} rules of a file"] = _ratio("pass", file)
    return found


def _ratio(code: str, more: Mapping[str, str] = {}) -> float:
    counts = []
    for mode in ("fix", ""):
        tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        _run([], code, mode, more)  # writes byte code
        ran = _run(tool, code, mode, more)
        counted = _COUNTED.search(ran.stderr)
        if ran.returncode or counted is None:
            raise harness.BenchmarkError(f"{code}: {ran.stderr[-2000:]}")
        counts.append(int(counted[1]))
    return counts[0] / counts[1]


def _pages(code: str, mode: str) -> int:
    return min(int(_run([], code + _MEMORY, mode, {}).stdout) for _ in range(5))


def _run(
    tool: list[str], code: str, mode: str, more: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    fixed = {"CUDAGUARD": mode, "PYTHONHASHSEED": "0"}
    fixed.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    environ = {**harness.environment(), **fixed, **more}
    # valgrind sets a variable that a rule asks for; what `site` starts comes after that.
    # A few objects more decide whether a full garbage collection falls into it.
    start = "import gc, os, site; gc.disable(); os.environ.pop('LD_LIBRARY_PATH', ''); site.main()"
    code = f"{start}; {code}"
    command = [*tool, sys.executable, "-S", "-c", code]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def main(save: str | None, compare: str | None, only: str = "") -> int:
    """Count, print and compare; return 1 if a ratio has risen."""
    before = json.loads(Path(compare).read_text()) if compare else {}
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), only)
    risen = {n for n, ratio in found.items() if ratio > before.get(n, ratio) * (1 + TOLERANCE)}
    for name, ratio in found.items():
        was = f"   was {before[name]:.4f}x" if name in before else ""
        print(f"{name:32}{ratio:.4f}x{was}{'   RISEN' if name in risen else ''}")
    if save:
        ratios = {name: round(ratio, 4) for name, ratio in found.items()}
        Path(save).write_text(json.dumps(ratios, indent=1) + os.linesep)
    return bool(risen)
