"""What a real driver does, measured: ``python -m benchmarks.gpu_facts [--json] [--only GROUP]``.

For a machine with an NVIDIA GPU. Each line is measured in a process of its own, so that none finds
what another has left; one that fails, or hangs, says so in its place, and the rest goes on. What is
asked is in `gpu_questions`, `gpu_torch_questions` and, what takes a minute in all,
`gpu_wait_questions`: ``--only waits``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from benchmarks import gpu_questions, harness
from benchmarks.gpu_helpers import MARK
from benchmarks.gpu_torch_questions import TORCH_QUESTIONS
from benchmarks.gpu_wait_questions import WAITS, WAITS_WITH_TORCH

if TYPE_CHECKING:
    from benchmarks.gpu_questions import Question

TIME_LIMIT = 120  # seconds, for one question; the first import of torch takes many of them
QUESTIONS = (*gpu_questions.QUESTIONS, *WAITS, *WAITS_WITH_TORCH, *TORCH_QUESTIONS)


def main(arguments: list[str] | None = None) -> int:
    """Ask everything and print the answers; a question that fails is no failure of the whole."""
    groups = tuple(dict.fromkeys(question.group for question in QUESTIONS))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_facts", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON, for a file to keep")
    parser.add_argument(
        "--only", action="append", choices=groups, metavar="GROUP", help=f"of {', '.join(groups)}"
    )
    options = parser.parse_args(arguments)
    wanted = [q for q in QUESTIONS if q.group in (options.only or groups)]
    environ = environment()
    # Asked once, and not by each question: without it none that needs torch can be answered.
    torch = ask(gpu_questions.TORCH, environ) if any(q.needs_torch for q in wanted) else {}
    rows = []
    for question in wanted:
        if question.needs_torch and "failure" in torch:
            answer = {"failure": f"not measured: {torch['failure']}"}
        else:
            answer = ask(question, environ)
        rows.append({"group": question.group, "what": question.what, **answer})
        if not options.json:
            _show(rows)
        sys.stdout.flush()
    if options.json:
        print(json.dumps({**heading(), "rows": rows}, indent=1))
    return 0


def heading() -> dict[str, str]:
    """What has to be said of the machine besides the driver."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, "
        f"{os.cpu_count()} CPUs",
    }


def ask(
    question: Question, environ: dict[str, str], time_limit: float = TIME_LIMIT
) -> dict[str, Any]:
    """Return ``{"answer": ...}`` or ``{"failure": why}``; never raises."""
    program = f"from benchmarks.gpu_helpers import *\n{question.code}\n"
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**environ, **dict(question.env)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a forked child that hangs is ended with it
        )
    except OSError as error:
        return {"failure": str(error)}
    try:
        out, err = process.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired:
        _end(process)
        return {"failure": f"no answer in {time_limit:g} s"}
    for line in reversed(out.splitlines()):
        if line.startswith(MARK):
            return {"answer": json.loads(line[len(MARK) :])}
    last = (err.strip() or "no answer").splitlines()[-1]
    return {"failure": f"status {process.returncode}: {last}"}


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:  # it has just ended by itself
        pass
    process.communicate()


def environment() -> dict[str, str]:
    """Return the environment of the programs: this one, without what would answer for them."""
    environ = harness.environment()
    # The checkout need not be installed where the GPU is.
    environ["PYTHONPATH"] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in ("LOCAL_RANK", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING"):
        environ.pop(name, None)
    return environ


def _show(rows: list[dict[str, Any]]) -> None:
    """Print the last row, below the heading of its group if it is the first one of that."""
    row = rows[-1]
    if len(rows) == 1:
        print(*(f"{name}: {value}" for name, value in heading().items()), sep="\n")
    if len(rows) == 1 or rows[-2]["group"] != row["group"]:
        print(f"\n{row['group']}")
    answer = row["answer"] if "answer" in row else f"FAILED: {row['failure']}"
    if isinstance(answer, dict):
        answer = ", ".join(f"{name} {value}" for name, value in answer.items())
    print(f"  {row['what']:<48}  {answer}")


if __name__ == "__main__":
    raise SystemExit(main())
