"""The command line: ``python -m benchmarks [--rounds N | --quick]``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import harness, instructions, subjects

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15
QUICK_ROUNDS = 3
DISTRIBUTIONS = 300


def main(arguments: list[str] | None = None) -> int:
    """Measure everything and print the table."""
    options = _options(arguments)
    if options.instructions or options.save or options.compare or options.only:
        return instructions.main(options.save, options.compare, options.only)
    rounds = QUICK_ROUNDS if options.quick else options.rounds
    modules, starts = (100, 1) if options.quick else (1000, 5)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cudaguard-benchmarks-") as name:
        folder = Path(name)
        environ = harness.environment()
        if not _byte_code_can_be_written():
            environ["PYTHONPYCACHEPREFIX"] = str(folder / "byte-code")
        environ["TMPDIR"] = str(folder / "temporary")  # peers leave files there
        (folder / "temporary").mkdir()
        subjects.prepare(folder, modules, DISTRIBUTIONS)

        def run(subject: harness.Subject) -> dict[str, float]:
            return harness.run_once(subject, name, environ)

        missing = _missing_peers(run)
        sections = []
        for group in subjects.groups(folder, modules, DISTRIBUTIONS, starts):
            able = tuple(s for s in group.subjects if missing.keys().isdisjoint(s.requires.split()))
            sys.stderr.write(f"{group.title} ")
            series = harness.measure(group._replace(subjects=able), rounds, run, _tick)
            sys.stderr.write("\n")
            sections.append((group.title, harness.lines_of(group, series, missing)))
    print(_heading(rounds, time.monotonic() - began))
    print(harness.table(sections))
    return 0


def _missing_peers(run: Callable[[harness.Subject], dict[str, float]]) -> dict[str, str]:
    """Return the peers that cannot be measured here, each with the reason."""
    tools = {"cc": "there is no C compiler", "nm": "there is no nm"}
    missing = {tool: words for tool, words in tools.items() if shutil.which(tool) is None}
    for peer, (script, *task) in subjects.PROBES.items():
        if not _is_installed(peer):
            missing[peer] = f"{peer} is not installed"
            continue
        try:
            run(harness.Subject(peer, task, script=script))
        except harness.BenchmarkError:  # a peer's internals may have moved in a new version
            missing[peer] = f"{peer} does not work here"
    return missing


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="rounds that count (default: %(default)s)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_ROUNDS} rounds with fewer modules: shows that all works, and no figures",
    )
    counted = "count instructions by valgrind instead"
    parser.add_argument("--instructions", action="store_true", help=counted)
    parser.add_argument("--save", metavar="FILE", help=f"{counted}, and write the ratios")
    parser.add_argument(
        "--compare", metavar="FILE", help=f"{counted}; status 1 if one has risen beyond the file's"
    )
    names = (*instructions.PROGRAMS, "")
    parser.add_argument("--only", default="", choices=names, help="count only for this program")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds: expected 1 or more, got {options.rounds}")
    return options


def _byte_code_can_be_written() -> bool:
    spec = importlib.util.find_spec("cudaguard")
    if spec is None or spec.origin is None:
        raise SystemExit("cudaguard is not installed here: python -m pip install -e .")
    return os.access(Path(spec.origin).parent, os.W_OK)


def _tick() -> None:
    sys.stderr.write(".")
    sys.stderr.flush()


def _heading(rounds: int, seconds: float) -> str:
    words = []
    for package in ("cudaguard", *subjects.DISTRIBUTIONS):
        try:
            words.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            if package in subjects.PEERS:
                words.append(f"no {package}")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    return (
        f"Python {platform.python_version()}, {machine}, {load}; {', '.join(words)}\n"
        f"{rounds} interleaved rounds in {seconds:.0f} s, every subject in fresh interpreters\n"
    )


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except harness.BenchmarkError as error:
        raise SystemExit(f"benchmarks: {error}") from None
