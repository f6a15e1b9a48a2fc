"""Fresh interpreters, interleaved rounds, ratios with their spread, and the table.

A figure in milliseconds says as much about the machine as about the code, and on a busy
machine not even that. So a subject is only ever compared with a peer that ran right beside it,
round by round, and what is reported is how that ratio varied.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

HERE = Path(__file__).parent
# Variables that would change what the children import, compile or report.
NOT_INHERITED = ("CUDAGUARD", "PYTHON", "COVERAGE", "COV_", "DD_")
TIME_LIMIT = 120  # seconds, for one interpreter


class BenchmarkError(Exception):
    """A child failed, or measured nothing that a ratio could be made of."""


class Subject(NamedTuple):
    """One thing to measure: a task of a script with its arguments.

    Args:
        name: Names it in rows.
        task: The task and its arguments.
        requires: The packages that must be installed, with spaces between them.
        python: The interpreter, if it is not the one that runs the benchmarks.
        repeat: Interpreters per round, whose values are added up: for small differences.
        script: The file that has the task, beside this one.
    """

    name: str
    task: tuple[str, ...]
    requires: str = ""
    python: str = sys.executable
    repeat: int = 1
    script: str = "child.py"


class Row(NamedTuple):
    """One line of the table: a value of a subject over a value of its peer.

    Args:
        what: The line's label.
        subject: Name of a subject, or ``name:value`` where it measures several values.
        peer: The same, for what stands below the fraction bar.
        limit: The largest median ratio that is within the budget; infinite for rows that
            have none and are there for comparison.
        reason: Where the limit comes from, in a word or two.
        beside: The peer's label, if its name is not fit to be shown.
        is_memory: Are the values bytes, and not seconds?
    """

    what: str
    subject: str
    peer: str
    limit: float = math.inf
    reason: str = ""
    beside: str = ""
    is_memory: bool = False

    @property
    def peer_label(self) -> str:
        """What the table calls the peer."""
        return self.beside or self.peer

    @property
    def budget(self) -> str:
        """The budget as the table shows it."""
        if math.isinf(self.limit):
            return ""
        return f"<= {self.limit:.3g}" + (f" ({self.reason})" if self.reason else "")


class Group(NamedTuple):
    """Subjects that are run in turns, and the rows made of them."""

    title: str
    subjects: tuple[Subject, ...]
    rows: tuple[Row, ...]


class Spread(NamedTuple):
    """The smallest, middle and largest of the ratios of all rounds."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.median)} [{_short(self.low)} .. {_short(self.high)}]"


def spread(values: Iterable[float]) -> Spread:
    """Summarize the values; the median of an even number is the mean of the middle two.

    Raises:
        BenchmarkError: for no values, and for values that are not finite.
    """
    ordered = sorted(values)
    if not ordered or not all(map(math.isfinite, ordered)):
        raise BenchmarkError(f"no finite figures to summarize: {ordered}")
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return Spread(ordered[0], median, ordered[-1])


def ratios(subject: Sequence[float], peer: Sequence[float]) -> list[float]:
    """Divide round by round: what ran side by side is compared, never the averages.

    Raises:
        BenchmarkError: for series of unequal length, and for a peer that took no time.
    """
    if len(subject) != len(peer):
        raise BenchmarkError(f"{len(subject)} rounds of a subject but {len(peer)} of its peer")
    if any(value <= 0 for value in peer):
        raise BenchmarkError("a peer took no CPU time: the clock of this machine is too coarse")
    return [ours / theirs for ours, theirs in zip(subject, peer)]


def environment() -> dict[str, str]:
    """This environment without what would switch things on, or byte-code off, in children."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith(NOT_INHERITED)}
    return {**kept, "PYTHONNOUSERSITE": "1"}


def run_once(subject: Subject, folder: str, environ: Mapping[str, str]) -> dict[str, float]:
    """Run the subject in a fresh interpreter and return what it printed.

    Raises:
        BenchmarkError: if the interpreter fails, with its last words.
    """
    done = subprocess.run(
        [subject.python, str(HERE / subject.script), *subject.task],
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"{subject.name}: exit status {done.returncode}\n{done.stderr}")
    pairs = (line.rpartition(" ") for line in done.stdout.splitlines())
    return {name: float(value) for name, _, value in pairs}


def measure(
    group: Group,
    rounds: int,
    run: Callable[[Subject], dict[str, float]],
    tick: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Run the subjects of a group in turns and return the values of each, round by round.

    The first round is thrown away: it writes byte-code and fills the file cache. Every other
    round goes backwards, so that nobody always comes after the same neighbor.
    """
    series: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for subject in group.subjects[:: -1 if number % 2 else 1]:
            total: dict[str, float] = {}
            for _ in range(subject.repeat if number else 1):
                for value, cpu in run(subject).items():
                    total[value] = total.get(value, 0.0) + cpu
            if number:
                for value, cpu in total.items():
                    key = subject.name if value == "cpu" else f"{subject.name}:{value}"
                    series.setdefault(key, []).append(cpu / subject.repeat)
        tick()
    return series


HEADINGS = ("", "beside", "ratio [min .. max]", "budget", "", "CPU here / there")


def lines_of(
    group: Group, series: Mapping[str, list[float]], missing: Mapping[str, str]
) -> list[list[str]]:
    """Return the cells of the group's rows.

    Args:
        group: The group, with the subjects that could not be run.
        series: What `measure` returned.
        missing: Peers that cannot be run here, each with the reason in words.
    """
    lacks = {subject.name: subject.requires for subject in group.subjects}
    lines = []
    for row in group.rows:
        names = (name.partition(":")[0] for name in (row.subject, row.peer))
        needed = {package for name in names for package in lacks[name].split()}
        reasons = [missing[peer] for peer in missing if peer in needed]
        if reasons:
            lines.append([row.what, row.peer_label, "; ".join(reasons)])
            continue
        ours, theirs = series[row.subject], series[row.peer]
        ratio = spread(ratios(ours, theirs))
        lines.append(
            [
                row.what,
                row.peer_label,
                str(ratio),
                row.budget,
                verdict(ratio, row),
                " / ".join(_shown(spread(values).median, row) for values in (ours, theirs)),
            ]
        )
    return lines


def verdict(ratio: Spread, row: Row) -> str:
    """Say whether the median is within the budget; "" for rows that have none."""
    if math.isinf(row.limit):
        return ""
    return "within" if ratio.median <= row.limit else "over"


def table(sections: Iterable[tuple[str, list[list[str]]]]) -> str:
    """Lay out all sections with the same column widths."""
    sections = list(sections)
    cells = [list(HEADINGS), *(line for _, lines in sections for line in lines)]
    widths = [
        max(len(line[column]) for line in cells if column < len(line))
        for column in range(len(HEADINGS))
    ]

    def laid_out(line: list[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()

    text = [laid_out(["", *HEADINGS[1:]])]
    for title, lines in sections:
        text += ["", title, *map(laid_out, lines)]
    return "\n".join(text)


def _short(ratio: float) -> str:
    if 0 < ratio < 0.01:
        return f"{ratio:.2g}"
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.3f}"


def _shown(value: float, row: Row) -> str:
    return f"{value:.0f} bytes" if row.is_memory else _time(value)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
